// Hands the model's storage to the owner and fills it.
#include <algorithm>
#include <set>

#include "checks/plugin_call.h"
#include "plan/composition.h"
#include "state/initial_values.h"
#include "state/weights.h"
#include "step/step_state.h"

namespace drivetrain {
namespace {

void fill(Composition& run, const std::vector<Trainables>& all) {
  const std::string model = run.id_of(Model::kKind);
  const std::string folder = plugin_call({model, "weights_folder"}, [&] { return run.model->weights_folder(); });
  if (folder.empty()) {
    fill_initial_values(all, run.services->seed, *run.mesh);
  } else {
    const WeightRules rules = plugin_call({model, "weight_rules"}, [&] { return run.model->weight_rules("hf"); });
    for (const std::string& warning : load_weights(folder, rules, all, *run.mesh)) run.log->warning(warning);
  }
  for (const Trainables& chunk : all)
    for (const Trainable& t : chunk)
      if (!t.working.is_same(t.value)) at::Tensor(t.working).copy_(t.value);
}

// New values, as after an update: copies and gathers of the strategies follow.
void spread(Composition& run, std::vector<Trainables> all) {
  StepState state(run.services->seed, &run.units, run.recompute.get(), {}, run.id_of(Recompute::kKind));
  for (Trainables& chunk : all)
    each_strategy(run.strategies, Nesting::outermost_first, "after_update", "",
                  [&](Strategy& s) { s.after_update(chunk, state); });
}

// The storage owner stands among the strategies under its name.
const std::string& id_of_owner(const Composition& run) {
  const auto is_owner = [&](const NamedStrategy& s) { return s.strategy == run.data_parallel; };
  const auto owner = std::find_if(run.strategies.begin(), run.strategies.end(), is_owner);
  if (owner == run.strategies.end()) throw fail(ErrorCode::internal, "the storage owner is none of the strategies");
  return owner->id;
}

std::vector<Trainables> checked(std::vector<Trainables> chunks) {
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) {
      const bool complete = t.param && t.value.defined() && t.working.defined() && t.grad.defined();
      if (!complete || t.working.numel() != t.value.numel() || t.grad.numel() != t.value.numel())
        throw fail(ErrorCode::plugin, "returned a trainable of ", t.param ? t.param->name : "no parameter",
                   " whose value, working and grad are not all there with one number of elements");
    }
  return chunks;
}

}  // namespace

std::vector<Trainables> held_values(const Composition& run) {
  std::vector<Trainables> held = run.chunks;
  const std::string& owner = id_of_owner(run);
  for (Trainables& chunk : plugin_call({owner, "frozen"}, [&] { return run.data_parallel->frozen(); }))
    held.push_back(std::move(chunk));
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
  const std::string& owner = id_of_owner(run);
  run.chunks = plugin_call({owner, "trainables"}, [&] { return checked(run.data_parallel->trainables()); });
  const std::vector<Trainables> held = held_values(run);
  std::vector<Trainables> all = held;
  all.push_back(unnamed_values(run));
  fill(run, all);
  spread(run, held);
}

}  // namespace drivetrain
