#include "run/run.h"

#include <algorithm>
#include <set>

#include "formats/model_facts.h"
#include "plugin_calls/plugin_call.h"
#include "state/hf_folder.h"
#include "state/initial_values.h"
#include "state/weights.h"
#include "step/step_state.h"

namespace drivetrain {
namespace {

// Every parameter under its own name.
WeightRules own_rules(const Run& run) {
  WeightRules rules;
  for (const ParamPtr& param : run.model_params) {
    const std::vector<int64_t>& shape = param->layout.global_shape;
    rules.rules.push_back({param->name, {{param->name, shape.empty() ? 1 : shape[0], false}}, false});
  }
  return rules;
}

std::string other_options(const Run& run, const Checkpoint& native, const std::string& folder) {
  const auto is_model = [](const ChosenPlugin& plugin) { return plugin.kind() == Model::kKind; };
  const auto model = std::find_if(run.chosen.begin(), run.chosen.end(), is_model);
  if (model == run.chosen.end()) return "";
  const OptionTable& table = run.folders->registry().options(model->kind(), model->name());
  return differing_options(native, model->name(), table.to_value(model->options.get()), folder);
}

// From a Hugging Face folder, a checkpoint of ours, or one of another program.
std::vector<std::string> load_from(Run& run, const std::string& folder, const std::vector<Trainables>& all) {
  const std::string model = run.plan.id_of(Model::kKind);
  const auto rules_for = [&](const std::string& naming) {
    if (naming == kNativeNaming) return own_rules(run);
    return plugin_call({model, "weight_rules"}, [&] { return run.plugins.model->weight_rules(naming); });
  };
  if (HfFolder::has_weights(folder)) return load_weights(folder, rules_for("hf"), all, *run.mesh);
  const OpenedFolder opened = run.folders->open(folder);
  run.log->info(concat("weights from ", folder, ": ", opened.description));
  const WeightRules rules = rules_for(opened.naming);
  const std::string unsaid = opened.naming == kNativeNaming ? other_options(run, *opened.state, folder)
                                                            : check_model_facts(*opened.state, rules, folder);
  std::vector<std::string> warnings = load_weights(*weights_of(opened.state, folder), rules, all, *run.mesh);
  if (!unsaid.empty()) warnings.push_back(unsaid);
  return warnings;
}

void fill(Run& run, const std::vector<Trainables>& all) {
  const std::string model = run.plan.id_of(Model::kKind);
  const std::string folder =
      plugin_call({model, "weights_folder"}, [&] { return run.plugins.model->weights_folder(); });
  if (folder.empty()) {
    fill_initial_values(all, run.services->seed, *run.mesh);
  } else {
    for (const std::string& warning : load_from(run, folder, all)) run.log->warning(warning);
  }
}

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

}  // namespace

std::vector<Trainables> all_values(const Run& run) {
  std::vector<Trainables> all = held_values(run);
  all.push_back(unnamed_values(run, all));
  return all;
}

void spread_values(Run& run) { spread(run, held_values(run)); }

void build_run(Run& run) {
  each_strategy(run.plugins.strategies, Nesting::innermost_first, "attach", "",
                [&](Strategy& s) { s.attach(run.units); });
  const std::string& owner = id_of_owner(run);
  run.chunks = plugin_call({owner, "trainables"}, [&] { return checked(run.plugins.data_parallel->trainables()); });
  if (!run.chunks.empty()) run.plan.updated_elements = elements_of(run.chunks);
  const std::vector<Trainables> held = held_values(run);
  std::vector<Trainables> all = held;
  all.push_back(unnamed_values(run, held));
  fill(run, all);
  spread(run, held);
}

}  // namespace drivetrain
