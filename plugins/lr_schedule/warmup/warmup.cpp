// DeepSpeed's WarmupLR: from warmup_min_lr to warmup_max_lr (default: the optimizer's lr) in warmup_num_steps, then
// constant.
//
// Source: DeepSpeed runtime/lr_schedules.py, WarmupLR; Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.2.
#include <drivetrain/services.h>
#include <drivetrain/toolkit/schedule/warmup.h>

namespace {

using namespace drivetrain;

class WarmupLr : public LrSchedule {
 public:
  struct Options : Warmup {
    double warmup_min_lr = 0;
    std::optional<double> warmup_max_lr;
  };
  static OptionTable options() {
    auto t = warmup_table<Options>();
    t.field("warmup_min_lr", &Options::warmup_min_lr, "learning rate of the first two updates")
        .at_least(0)
        .automatic("0 as in Hugging Face's integration", Value(0.0));
    t.field("warmup_max_lr", &Options::warmup_max_lr, "learning rate after the rise; null: the optimizer's")
        .at_least(0)
        .automatic("the optimizer's lr", [](const AutoFacts& facts) { return Value(facts.lr()); });
    return t;
  }

  WarmupLr(const Options& options, const Services&) : options_(options) {}

  Hyper at(const Progress& progress, const Hyper& base) const override {
    const double low = options_.warmup_min_lr, high = options_.warmup_max_lr.value_or(base.lr);
    Hyper now = base;
    now.lr = low + (high - low) * warmup_factor(options_, schedule_index(progress));
    return now;
  }

 private:
  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "warmup", WarmupLr)
