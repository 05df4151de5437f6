// Mixed precision with float16: parameters and activations are float16, gradients are added up in float32, the
// optimizer updates float32 masters from which the parameters are rounded after every step, and the loss is scaled so
// that small gradients survive.
//
// Source: Micikevicius et al. 2018, "Mixed precision training", sections 3.1 (masters) and 3.2 (loss scaling). Options
// and defaults are those of DeepSpeed's `fp16` section. Masters, casts, sums and the scale itself are the runtime's:
// this plugin names types and rules. Not recorded as a CUDA graph: the scale is a value of the host that changes from
// step to step.
#include <drivetrain/precision.h>

#include <cmath>

namespace {

using namespace drivetrain;

class Fp16 : public Precision {
 public:
  struct Options {
    std::optional<bool> auto_cast;
    double loss_scale = 0;
    int64_t initial_scale_power = 16, loss_scale_window = 1000, hysteresis = 2;
    bool consecutive_hysteresis = false;
    int64_t min_loss_scale = 1;
    bool fp16_master_weights_and_grads = false;
  };
  static OptionTable options() {
    return table<Options>()
        .field("auto_cast", &Options::auto_cast,
               "without effect: a model's inputs are tokens, there is nothing to cast")
        .field("loss_scale", &Options::loss_scale, "0 is dynamic; else the scale, which then never changes")
        .at_least(0)
        .field("initial_scale_power", &Options::initial_scale_power, "the dynamic scale begins at 2 to this power")
        .range(0, 127)
        .field("loss_scale_window", &Options::loss_scale_window, "updates without overflow that double the scale")
        .at_least(1)
        .field("hysteresis", &Options::hysteresis, "overflow that halves the scale: 1 the first, 2 the second, ...")
        .at_least(1)
        .field("consecutive_hysteresis", &Options::consecutive_hysteresis,
               "every update without overflow restores the hysteresis, not only one that doubles the scale")
        .field("min_loss_scale", &Options::min_loss_scale, "an overflow at this scale ends the run")
        .at_least(1)
        .field("fp16_master_weights_and_grads", &Options::fp16_master_weights_and_grads,
               "only false: masters are float32")
        .refused("opt_level", "a word of Apex, which DeepSpeed refuses here too; leave it out")
        .finish(check);
  }

  Fp16(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext& ctx) override {
    if (options_.auto_cast) ctx.no_effect("fp16.auto_cast", "a model's inputs are tokens, there is nothing to cast");
    if (options_.loss_scale == 0) return;
    const Options usual;
    const auto idle = [&](const char* key, bool given) {
      if (given) ctx.no_effect(concat("fp16.", key), concat("loss_scale ", options_.loss_scale, " never changes"));
    };
    idle("initial_scale_power", options_.initial_scale_power != usual.initial_scale_power);
    idle("loss_scale_window", options_.loss_scale_window != usual.loss_scale_window);
    idle("hysteresis", options_.hysteresis != usual.hysteresis);
    idle("consecutive_hysteresis", options_.consecutive_hysteresis);
    idle("min_loss_scale", options_.min_loss_scale != usual.min_loss_scale);
  }

  Dtypes dtypes() const override { return {at::kHalf, at::kFloat, at::kFloat, at::kFloat}; }

  std::optional<LossScaling> loss_scaling() const override {
    LossScaling rules;
    rules.dynamic = options_.loss_scale == 0;
    rules.initial = rules.dynamic ? initial_scale(options_) : options_.loss_scale;
    rules.window = options_.loss_scale_window, rules.hysteresis = options_.hysteresis;
    rules.consecutive_hysteresis = options_.consecutive_hysteresis;
    rules.minimum = static_cast<double>(options_.min_loss_scale);
    return rules;
  }

 private:
  static double initial_scale(const Options& o) { return std::exp2(static_cast<double>(o.initial_scale_power)); }

  static void check(Options& o) {
    if (o.fp16_master_weights_and_grads)
      throw fail(ErrorCode::config,
                 "precision/fp16: fp16_master_weights_and_grads = true is not in this version: masters are float32. "
                 "Remove it; \"data_types\": {\"grad_accum_dtype\": \"fp16\"} makes the gradients float16");
    if (o.loss_scale == 0 && initial_scale(o) < static_cast<double>(o.min_loss_scale))
      throw fail(ErrorCode::config, "precision/fp16: initial_scale_power ", o.initial_scale_power,
                 " begins at the loss scale ", static_cast<int64_t>(initial_scale(o)), ", below min_loss_scale ",
                 o.min_loss_scale, ". Lower the one or raise the other");
  }

  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Precision, "fp16", Fp16)
