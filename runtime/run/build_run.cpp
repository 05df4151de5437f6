#include "run/run.h"

#include <algorithm>
#include <set>

#include "plugin_calls/plugin_call.h"
#include "run/fill_values.h"
#include "step/step_state.h"

namespace drivetrain {
namespace {

// Copies and gathers of the strategies.
void spread(Run& run, std::vector<Trainables> all) {
  for (const Trainables& chunk : all)
    for (const Trainable& t : chunk)
      if (!t.working.is_same(t.value)) at::Tensor(t.working).copy_(t.value);
  StepState state(run.services->seed, &run.units, run.plugins.recompute.get(), {}, run.plan.id_of(Recompute::kKind));
  for (Trainables& chunk : all)
    each_strategy(run.plugins.strategies, Nesting::outermost_first, "after_update", "",
                  [&](Strategy& s) { s.after_update(chunk, state); });
}

// The storage owner stands among the strategies under its name.
const std::string& id_of_owner(const Run& run) {
  const auto is_owner = [&](const NamedStrategy& s) { return s.strategy == run.plugins.data_parallel; };
  const auto owner = std::find_if(run.plugins.strategies.begin(), run.plugins.strategies.end(), is_owner);
  if (owner == run.plugins.strategies.end())
    throw fail(ErrorCode::internal, "the storage owner is none of the strategies");
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

// What this rank updates, and its parts of what nobody updates.
std::vector<Trainables> held_values(const Run& run) {
  std::vector<Trainables> held = run.chunks;
  const std::string& owner = id_of_owner(run);
  for (Trainables& chunk : plugin_call({owner, "frozen"}, [&] { return run.plugins.data_parallel->frozen(); }))
    held.push_back(std::move(chunk));
  return held;
}

// Parameters that the storage owner named in neither, whole.
Trainables unnamed_values(const Run& run, const std::vector<Trainables>& held) {
  std::set<const Param*> named;
  for (const Trainables& chunk : held)
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

double elements_of(const std::vector<Trainables>& chunks) {
  double elements = 0;
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) elements += static_cast<double>(t.value.numel());
  return elements;
}

// The schedule counts units: a list with fewer of them would end somewhere else.
void attach(Strategy& strategy, UnitList& list) {
  const size_t units = list.units.size();
  strategy.attach(list);
  if (list.units.size() != units || std::find(list.units.begin(), list.units.end(), nullptr) != list.units.end())
    throw fail(ErrorCode::plugin, "left ", list.units.size(), " units in the list of ", units,
               " that it was given, or null ones; it may replace a unit by one that wraps it, and drop none");
}

}  // namespace

std::vector<Trainables> all_values(const Run& run) {
  std::vector<Trainables> all = held_values(run);
  all.push_back(unnamed_values(run, all));
  return all;
}

void spread_values(Run& run) { spread(run, held_values(run)); }

void build_run(Run& run) {
  each_strategy(run.plugins.strategies, Nesting::innermost_first, "attach", "",
                [&](Strategy& s) { attach(s, run.units); });
  const std::string& owner = id_of_owner(run);
  run.chunks = plugin_call({owner, "trainables"}, [&] { return checked(run.plugins.data_parallel->trainables()); });
  if (!run.chunks.empty()) run.plan.updated_elements = elements_of(run.chunks);
  const std::vector<Trainables> held = held_values(run);
  std::vector<Trainables> all = held;
  all.push_back(unnamed_values(run, held));
  fill_values(run, all);
  spread(run, held);
}

}  // namespace drivetrain
