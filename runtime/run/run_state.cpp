#include "run/run_state.h"

#include "plugin_calls/plugin_call.h"
#include "step/named_state.h"

namespace drivetrain {
namespace {

using Changes = StateOwner::Changes;

// `show(visitor)` gives names without the owner's.
template <class Show>
StateOwner owner(const std::string& name, Changes changes, Show show) {
  return {.name = name, .changes = changes, .visit = [name, show](StateVisitor& visitor) {
            NamedState own(visitor, name);
            show(own);
          }};
}

template <class Plugin>
StateOwner plugin_owner(const std::string& id, Plugin& plugin, Changes changes = Changes::any_time) {
  return owner(id, changes, [id, &plugin](StateVisitor& v) { plugin_call({id, "state"}, [&] { plugin.state(v); }); });
}

void visit_values(const Run& run, StateVisitor& visitor) {
  for (Trainables& chunk : all_values(run))
    for (Trainable& t : chunk)
      if (t.value.numel() > 0 && !run.frozen_base.params.count(t.param->name))
        visitor.tensor(t.param->name, t.value, t.layout);
}

}  // namespace

RunState run_state(Run& run, Trainer& trainer, EventBus* bus) {
  const RunPlan& plan = run.plan;
  const RunPlugins& plugins = run.plugins;
  RunState state = {
      owner("trainer", Changes::any_time, [&](StateVisitor& v) { trainer.state(v); }),
      owner("finish", Changes::any_time, [&](StateVisitor& v) { trainer.finish_state(v); }),
      owner("model", Changes::at_update, [&](StateVisitor& v) { visit_values(run, v); }),
      plugin_owner(plan.id_of(Optimizer::kKind), *plugins.optimizer, Changes::at_update),
      plugin_owner(plan.id_of(LrSchedule::kKind), *plugins.lr_schedule),
      owner(plan.id_of(Dataset::kKind), Changes::any_time, [&](StateVisitor& v) { trainer.dataset_state(v); })};
  for (const NamedStrategy& s : plugins.strategies) state.push_back(plugin_owner(s.id, *s.strategy));
  for (const NamedPolicy& p : plugins.checkpoint_policies) {
    state.push_back(plugin_owner(p.id, *p.policy));
    state.back().may_be_new = true;
  }
  for (const NamedMonitor& m : plugins.monitors) {
    StateOwner& monitor = state.emplace_back(plugin_owner(m.id, *m.monitor));
    monitor.may_be_new = monitor.of_rank_0 = true;
    if (bus)
      monitor.visit = [bus, visit = std::move(monitor.visit)](StateVisitor& v) {
        bus->flush();
        visit(v);
      };
  }
  return state;
}

void visit_state(const RunState& state, StateVisitor& visitor) {
  for (const StateOwner& owner : state) owner.visit(visitor);
}

}  // namespace drivetrain
