// Mixed precision with bfloat16: parameters and activations are bfloat16, gradients are added up in float32, and the
// optimizer updates float32 masters from which the parameters are rounded after every step.
//
// Source: Micikevicius et al. 2018, "Mixed precision training", section 3.1 (masters); Kalamkar et al. 2019, "A study
// of BFLOAT16 for deep learning training". The exponent is float32's, so there is no loss scale. Masters, casts and
// sums are the runtime's: this plugin only names the types.
#include <drivetrain/precision.h>

namespace {

using namespace drivetrain;

class Bf16 : public Precision {
 public:
  struct Options {
    bool check_grad_overflow = true;
    std::optional<bool> immediate_grad_update;
    bool bf16_master_weights_and_grads = false, bf16_optimizer_states = false;
  };
  static OptionTable options() {
    return table<Options>()
        .field("check_grad_overflow", &Options::check_grad_overflow,
               "true: an update whose gradients are not finite is left out; false: it ends the run")
        .field("immediate_grad_update", &Options::immediate_grad_update,
               "without effect: every gradient is added to its sum at once")
        .field("bf16_master_weights_and_grads", &Options::bf16_master_weights_and_grads,
               "only false: masters are float32")
        .field("bf16_optimizer_states", &Options::bf16_optimizer_states, "only false: moments are float32")
        .finish([](Options& o) {
          if (o.bf16_master_weights_and_grads || o.bf16_optimizer_states)
            throw fail(ErrorCode::config, "precision/bf16: ",
                       o.bf16_master_weights_and_grads ? "bf16_master_weights_and_grads" : "bf16_optimizer_states",
                       " = true is not in this version: masters and moments are float32; remove it. \"data_types\": "
                       "{\"grad_accum_dtype\": \"bf16\"} makes the gradients bfloat16");
        });
  }

  Bf16(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext& ctx) override {
    ctx.capturable();
    if (options_.immediate_grad_update)
      ctx.no_effect("bf16.immediate_grad_update", "every gradient is added to its sum at once");
  }

  Dtypes dtypes() const override { return {at::kBFloat16, at::kFloat, at::kFloat, at::kFloat}; }
  bool skips_not_finite() const override { return options_.check_grad_overflow; }

 private:
  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Precision, "bf16", Bf16)
