// Builds the model on the meta device, hands its storage to the owner and fills it.
#include "compose/composition.h"
#include "compose/plain_layers.h"
#include "state/initial_values.h"
#include "state/weights.h"
#include "step/step_state.h"

namespace drivetrain {
namespace {

void build_units(Composition& run) {
  Builder builder{nullptr, run.attention, *run.mesh, run.facts};
  builder.layers = make_plain_layers(builder.attention);
  each_strategy(run.strategies, Nesting::innermost_first, "build", "", [&](Strategy& s) { s.build(builder); });
  run.attention = builder.attention;
  run.units.units = run.model->build(*builder.layers);
}

// Parameters no optimizer updates still need their values.
Trainables frozen(const UnitList& units) {
  Trainables list;
  for (const ParamPtr& param : units.all()) {
    if (param->trainable) continue;
    Trainable t;
    t.param = param;
    t.value = t.working = param->tensor.detach().view(-1);
    t.layout = param->layout;
    list.push_back(std::move(t));
  }
  return list;
}

void fill(Composition& run) {
  std::vector<Trainables> all = run.chunks;
  all.push_back(frozen(run.units));
  const std::string folder = run.model->weights_folder();
  if (folder.empty()) {
    fill_initial_values(all, run.services->seed, *run.mesh);
  } else {
    for (const std::string& warning : load_weights(folder, run.model->weight_rules("hf"), all, *run.mesh))
      run.log->warning(warning);
  }
  for (const Trainables& chunk : all)
    for (const Trainable& t : chunk)
      if (!t.working.is_same(t.value)) at::Tensor(t.working).copy_(t.value);
}

// New values, as after an update: copies and gathers of the strategies follow.
void spread(Composition& run) {
  StepState state(run.services->seed, &run.units, run.recompute.get());
  for (Trainables& chunk : run.chunks)
    each_strategy(run.strategies, Nesting::outermost_first, "after_update", "", [&](Strategy& s) { s.after_update(chunk, state); });
}

}  // namespace

void build_run(Composition& run) {
  run.mesh = std::make_unique<Mesh>(run.mesh_plan.axes, run.services->rank, run.services->world_size, run.communicator);
  run.services->mesh = run.mesh.get();
  build_units(run);
  each_strategy(run.strategies, Nesting::innermost_first, "attach", "", [&](Strategy& s) { s.attach(run.units); });
  run.chunks = run.data_parallel->trainables();
  fill(run);
  spread(run);
}

}  // namespace drivetrain
