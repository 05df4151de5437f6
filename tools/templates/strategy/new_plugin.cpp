// Reports the length of each block's gradient as a figure of the run: it shows up in metrics.jsonl and every monitor.
//
// A strategy overrides the hooks that it needs; strategy.h says when each is called. This one only looks: a run with it
// has the numbers of a run without.
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

namespace {

using namespace drivetrain;

class NewPlugin : public Strategy {
 public:
  struct Options {
    int64_t every = 1;
    bool blocks_only = true;
  };
  static OptionTable options() {
    return table<Options>()
        .field("every", &Options::every, "figures in every so many steps")
        .at_least(1)
        .field("blocks_only", &Options::blocks_only, "false: of the embedding and the head too");
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext& ctx) override { ctx.cost("reads every gradient once more, to report its length"); }

  // Once per run, with the units of this rank's stage.
  void attach(UnitList& units) override { units_ = units; }

  // Gradients of the visit's micro-batch are in the slots, added to earlier ones of the step; they are not scaled yet.
  void after_backward(const Visit& visit, StepContext& ctx) override {
    const Unit& unit = *units_.units[static_cast<size_t>(visit.unit)];
    const bool wanted = unit.is_block() || !options_.blocks_only;
    if (!visit.last || !wanted || ctx.step() % options_.every != 0) return;
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const ParamPtr& param : unit.params())
      if (param->trainable && param->grad.defined()) sum = sum + param->grad.to(at::kDouble).square().sum();
    ctx.metric("gradient_of_" + unit.name(), sum.sqrt());
  }

 private:
  const Options options_;
  UnitList units_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "new_plugin", NewPlugin)
