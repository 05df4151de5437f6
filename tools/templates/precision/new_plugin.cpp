// The data types of a run: parameters and activations in 16 bits, float32 master weights, gradients as you choose.
//
// Source: Micikevicius et al. 2018, "Mixed precision training", section 3.1. Casts, masters and sums are the runtime's:
// this plugin only names the types. For float16 it also says how the loss is scaled.
#include <drivetrain/precision.h>

namespace {

using namespace drivetrain;

class NewPlugin : public Precision {
 public:
  struct Options {
    std::string dtype = "bf16";
    bool skip_not_finite = true;
  };
  static OptionTable options() {
    return table<Options>()
        .field("dtype", &Options::dtype, "of parameters and activations")
        .one_of({"bf16", "fp16"})
        .field("skip_not_finite", &Options::skip_not_finite,
               "true: an update whose gradients are not finite is left out; false: it ends the run");
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  // Parameters, stored gradients, sums of gradients over ranks, masters.
  Dtypes dtypes() const override {
    return {options_.dtype == "fp16" ? at::kHalf : at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
  }
  // float16 has few exponents: small gradients would underflow.
  std::optional<LossScaling> loss_scaling() const override {
    if (options_.dtype != "fp16") return std::nullopt;
    return LossScaling{.dynamic = true, .initial = 4096, .window = 500};
  }
  bool skips_not_finite() const override { return options_.skip_not_finite; }

 private:
  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Precision, "new_plugin", NewPlugin)
