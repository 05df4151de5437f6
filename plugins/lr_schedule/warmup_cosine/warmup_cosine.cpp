// DeepSpeed's WarmupCosineLR, in parts of the optimizer's lr: from warmup_min_ratio to 1 in warmup_num_steps, then half
// a cosine down to cos_min_ratio at total_num_steps, then constant.
//
// Source: DeepSpeed runtime/lr_schedules.py, WarmupCosineLR; Loshchilov and Hutter 2017, "SGDR", eq. 5. Two habits of
// DeepSpeed's are kept: the first update runs at 0 whatever warmup_min_ratio says, and the cosine starts one step in.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <drivetrain/services.h>
#include <drivetrain/toolkit/schedule/warmup.h>

namespace {

using namespace drivetrain;

class WarmupCosine : public LrSchedule {
 public:
  struct Options : Warmup {
    int64_t total_num_steps = 0;
    double warmup_min_ratio = 0, cos_min_ratio = 0.0001;
  };
  static OptionTable options() {
    auto t = warmup_table<Options>();
    t.field("total_num_steps", &Options::total_num_steps, "updates until the cosine is down")
        .required()
        .at_least(1)
        .automatic("train_steps", [](const AutoFacts& facts) { return Value(facts.train_steps()); });
    t.field("warmup_min_ratio", &Options::warmup_min_ratio, "part of the optimizer's lr in the second update")
        .at_least(0);
    t.field("cos_min_ratio", &Options::cos_min_ratio, "part of the optimizer's lr at the end").at_least(0);
    return t;
  }

  WarmupCosine(const Options& options, const Services& services) : options_(options) {
    warn_if_never_full(options, options.total_num_steps, "lr_schedule/warmup_cosine", services.log);
  }

  Hyper at(const Progress& progress, const Hyper& base) const override {
    Hyper now = base;
    now.lr = base.lr * ratio(schedule_index(progress));
    return now;
  }

 private:
  double ratio(int64_t t) const {
    if (t < 0) return 0;
    const int64_t W = options_.length(), T = options_.total_num_steps;
    if (t < W) return options_.warmup_min_ratio + (1 - options_.warmup_min_ratio) * warmup_factor(options_, t);
    const double x = std::min(1.0, static_cast<double>(t - W + 1) / static_cast<double>(std::max<int64_t>(1, T - W)));
    const double low = options_.cos_min_ratio;
    return std::max(0.0, low + (1 - low) * (1 + std::cos(std::numbers::pi * x)) / 2);
  }

  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "warmup_cosine", WarmupCosine)
