#include "run/run_state.h"

#include "plugin_calls/plugin_call.h"
#include "step/named_state.h"

namespace drivetrain {

void visit_state(Run& run, Trainer& trainer, StateVisitor& visitor) {
  trainer.state(visitor);
  NamedState model(visitor, "model");
  for (Trainables& chunk : all_values(run))
    for (Trainable& t : chunk)
      if (t.value.numel() > 0) model.tensor(t.param->name, t.value, t.layout);

  const auto of_plugin = [&](const std::string& id, const auto& show) {
    NamedState own(visitor, id);
    plugin_call({id, "state"}, [&] { show(own); });
  };
  const RunPlan& plan = run.plan;
  of_plugin(plan.id_of(Optimizer::kKind), [&](StateVisitor& v) { run.plugins.optimizer->state(v); });
  of_plugin(plan.id_of(LrSchedule::kKind), [&](StateVisitor& v) { run.plugins.lr_schedule->state(v); });
  NamedState data(visitor, plan.id_of(Dataset::kKind));
  trainer.dataset_state(data);
  for (const NamedStrategy& s : run.plugins.strategies) of_plugin(s.id, [&](StateVisitor& v) { s.strategy->state(v); });
}

}  // namespace drivetrain
