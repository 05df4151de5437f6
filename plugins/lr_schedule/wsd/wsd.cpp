// Warm-up, stable, decay: the rate rises as in DeepSpeed's schedules, stays, and falls to min_lr in the last
// decay_num_steps of total_num_steps.
//
// Source: Hu et al. 2024, "MiniCPM"; Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed
// Training Durations", for 1-sqrt. The shapes of the fall are those of Megatron-LM, core/optimizer_param_scheduler.py,
// lr_wsd_decay_style.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/schedule/warmup.h>

namespace {

using namespace drivetrain;

class WarmupStableDecay : public LrSchedule {
 public:
  struct Options : Warmup {
    int64_t total_num_steps = 0, decay_num_steps = 0;
    std::string decay_style = "minus_sqrt";
    double warmup_min_lr = 0, min_lr = 0;
    std::optional<double> warmup_max_lr;
  };
  static OptionTable options() {
    auto t = warmup_table<Options>();
    t.field("total_num_steps", &Options::total_num_steps, "updates until the rate is down")
        .required()
        .at_least(1)
        .automatic("train_steps", [](const AutoFacts& facts) { return Value(facts.train_steps()); });
    t.field("decay_num_steps", &Options::decay_num_steps, "updates that the fall takes, the last of total_num_steps")
        .alias("lr_wsd_decay_iters")
        .required()
        .at_least(1)
        .automatic("a tenth of train_steps",
                   [](const AutoFacts& facts) { return Value(std::max<int64_t>(1, facts.train_steps() / 10)); });
    t.field("decay_style", &Options::decay_style, "shape of the fall; minus_sqrt: 1 - sqrt(x)")
        .alias("lr_wsd_decay_style")
        .one_of({"minus_sqrt", "linear", "cosine", "exponential"});
    t.field("warmup_min_lr", &Options::warmup_min_lr, "learning rate of the first two updates").at_least(0);
    t.field("warmup_max_lr", &Options::warmup_max_lr, "learning rate after the rise; null: the optimizer's")
        .at_least(0)
        .automatic("the optimizer's lr", [](const AutoFacts& facts) { return Value(facts.lr()); });
    t.field("min_lr", &Options::min_lr, "learning rate after the fall").at_least(0);
    return t;
  }

  WarmupStableDecay(const Options& options, const Services&) : options_(options) {
    if (options.length() + options.decay_num_steps > options.total_num_steps)
      throw fail(ErrorCode::config, "lr_schedule/wsd: the rise takes ", options.length(),
                 " updates (warmup_num_steps) ", "and the fall ", options.decay_num_steps,
                 " (decay_num_steps), more than total_num_steps ", options.total_num_steps, "; shorten one of them");
  }

  Hyper at(const Progress& progress, const Hyper& base) const override {
    const int64_t t = schedule_index(progress), fall = options_.total_num_steps - options_.decay_num_steps;
    const double high = options_.warmup_max_lr.value_or(base.lr);
    Hyper now = base;
    if (t <= fall) {
      now.lr = options_.warmup_min_lr + (high - options_.warmup_min_lr) * warmup_factor(options_, t);
    } else {
      const double x = static_cast<double>(t - fall) / static_cast<double>(options_.decay_num_steps);
      now.lr = options_.min_lr + (high - options_.min_lr) * remaining(std::min(1.0, x));
    }
    return now;
  }

 private:
  // From 1 at x = 0 to 0 at x = 1.
  double remaining(double x) const {
    if (options_.decay_style == "linear") return 1 - x;
    if (options_.decay_style == "cosine") return (1 + std::cos(std::numbers::pi * x)) / 2;
    if (options_.decay_style == "exponential") return 2 * std::pow(0.5, x) - 1;
    return 1 - std::sqrt(x);
  }

  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "wsd", WarmupStableDecay)
