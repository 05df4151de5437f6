// DeepSpeed's WarmupDecayLR: from warmup_min_lr to warmup_max_lr in warmup_num_steps, then in a straight line back to
// warmup_min_lr (not to zero) at total_num_steps.
//
// Source: DeepSpeed runtime/lr_schedules.py, WarmupDecayLR.
#include <algorithm>

#include <drivetrain/services.h>
#include <drivetrain/toolkit/schedule/warmup.h>

namespace {

using namespace drivetrain;

class WarmupDecay : public LrSchedule {
 public:
  struct Options : Warmup {
    int64_t total_num_steps = 0;
    double warmup_min_lr = 0, warmup_max_lr = 0.001;
  };
  static OptionTable options() {
    auto t = warmup_table<Options>();
    t.field("total_num_steps", &Options::total_num_steps, "updates until the rate is down again")
        .required()
        .at_least(1)
        .automatic("train_steps", [](const AutoFacts& facts) { return Value(facts.train_steps()); });
    t.field("warmup_min_lr", &Options::warmup_min_lr, "learning rate of the first two updates and at the end")
        .at_least(0)
        .automatic("0 as in Hugging Face's integration", Value(0.0));
    t.field("warmup_max_lr", &Options::warmup_max_lr, "learning rate after the rise")
        .at_least(0)
        .automatic("the optimizer's lr", [](const AutoFacts& facts) { return Value(facts.lr()); });
    return t;
  }

  WarmupDecay(const Options& options, const Services& services) : options_(options) {
    warn_if_never_full(options, options.total_num_steps, "lr_schedule/warmup_decay", services.log);
  }

  Hyper at(const Progress& progress, const Hyper& base) const override {
    Hyper now = base;
    now.lr =
        options_.warmup_min_lr + (options_.warmup_max_lr - options_.warmup_min_lr) * factor(schedule_index(progress));
    return now;
  }

 private:
  double factor(int64_t t) const {
    const int64_t W = options_.length(), T = options_.total_num_steps;
    if (t < W) return warmup_factor(options_, t);
    return std::max(0.0, static_cast<double>(T - t) / static_cast<double>(std::max<int64_t>(1, T - W)));
  }

  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "warmup_decay", WarmupDecay)
