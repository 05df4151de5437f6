// Hands the model's storage to the owner and fills it.
#include <set>

#include "compose/composition.h"
#include "state/initial_values.h"
#include "state/weights.h"
#include "step/step_state.h"

namespace drivetrain {
namespace {

void fill(Composition& run, const std::vector<Trainables>& all) {
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
void spread(Composition& run, std::vector<Trainables> all) {
  StepState state(run.services->seed, &run.units, run.recompute.get());
  for (Trainables& chunk : all)
    each_strategy(run.strategies, Nesting::outermost_first, "after_update", "", [&](Strategy& s) { s.after_update(chunk, state); });
}

}  // namespace

std::vector<Trainables> held_values(const Composition& run) {
  std::vector<Trainables> held = run.chunks;
  for (Trainables& chunk : run.data_parallel->frozen()) held.push_back(std::move(chunk));
  return held;
}

Trainables unnamed_values(const Composition& run) {
  std::set<const Param*> named;
  for (const Trainables& chunk : held_values(run))
    for (const Trainable& t : chunk) named.insert(t.param.get());
  Trainables whole;
  for (const ParamPtr& param : run.units.all()) {
    if (named.count(param.get())) continue;
    Trainable t;
    t.param = param, t.layout = param->layout;
    t.value = t.working = param->tensor.detach().view(-1);
    whole.push_back(std::move(t));
  }
  return whole;
}

void build_run(Composition& run) {
  each_strategy(run.strategies, Nesting::innermost_first, "attach", "", [&](Strategy& s) { s.attach(run.units); });
  run.chunks = run.data_parallel->trainables();
  const std::vector<Trainables> held = held_values(run);
  std::vector<Trainables> all = held;
  all.push_back(unnamed_values(run));
  fill(run, all);
  spread(run, held);
}

}  // namespace drivetrain
