#include "generate/run_strategies.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "checkpoint/load_state.h"
#include "checkpoint/saver.h"
#include "generate/text_tokens.h"
#include "log/log_console.h"
#include "plan/strategy_weights.h"
#include "plugin_calls/plugin_call.h"
#include "run/run_state.h"
#include "state/weights.h"
#include "train/strategy_state.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

std::string id_of(const Value& entry) {
  const Value* const type = entry.find("type");
  return concat(Strategy::kKind, "/", type && type->is_string() ? type->as_string() : std::string());
}

const ChosenPlugin* chosen_as(const PreparedRun& run, const std::string& id) {
  for (const ChosenPlugin& plugin : run.chosen)
    if (plugin.id() == id && plugin.selection.enabled) return &plugin;
  return nullptr;
}

// Whether exported weights have what the strategy's layers add. Nothing is computed: values are on the meta device.
bool is_merged(const Strategy& strategy, const std::string& id, const PreparedRun& run) {
  const auto meta = [](const std::vector<int64_t>& shape) {
    return at::empty(shape, at::TensorOptions(at::kFloat).device(at::kMeta));
  };
  const auto whole = [&](const std::string& name) {
    for (const ParamPtr& param : run.model_params)
      if (param->name == name) return meta(param->layout.global_shape);
    throw fail(ErrorCode::plugin, "merge asks for ", name, ", and the model has no such parameter");
  };
  return plugin_call({id, "merge"}, [&] {
    return std::any_of(run.model_params.begin(), run.model_params.end(), [&](const ParamPtr& param) {
      if (run.added_params.count(param->name)) return false;
      const at::Tensor value = meta(param->layout.global_shape);
      return !strategy.merge(*param, value, whole).is_same(value);
    });
  });
}

const Strategy* strategy_of(const PreparedRun& run, const std::string& id) {
  for (const NamedStrategy& named : run.plugins.strategies)
    if (named.id == id) return named.strategy.get();
  return nullptr;
}

int64_t final_step(const std::string& folder) {
  std::error_code unknown;
  const fs::path final = fs::path(folder) / "final";
  return fs::is_directory(final, unknown) ? step_of_hf_folder(final.string()) : -1;
}

// After which step it was saved, the newest of them where it is an average; -1: it does not say.
int64_t step_of(const Checkpoint& state) {
  const Value* const counters = state.facts().find("counters");
  const Value* const next = counters ? counters->find("trainer/next_step") : nullptr;
  if (next && next->is_int()) return next->as_int() - 1;
  const Value* const averaged = state.facts().find(kAveraged);
  const Value* const steps = averaged ? averaged->find("steps") : nullptr;
  const bool has = steps && steps->is_array() && !steps->items().empty() && steps->items().back().is_int();
  return has ? steps->items().back().as_int() : -1;
}

struct FoundCheckpoint {
  std::shared_ptr<const Checkpoint> state;  // null: there is none that is wanted
  std::string instead;                      // why, or what there is
  std::string tag{};                        // empty: it is the newest
};

FoundCheckpoint own_checkpoint(const PreparedRun& run, const std::string& folder, const std::string& tag) {
  try {
    const OpenedFolder opened = run.folders->open(folder, tag);
    if (opened.naming == kNativeNaming) return {opened.state, "", tag};
    return {nullptr, "the run has no checkpoint"};
  } catch (const Error& e) {
    if (e.code() != ErrorCode::config) throw;
    return {nullptr, concat("the run has no checkpoint that can be read (", e.what(), ")")};
  }
}

// Of the run's checkpoints; -1: there is none that its store lists. Formats of other programs are not asked.
int64_t newest_step(const PreparedRun& run, const std::string& folder) {
  try {
    const std::vector<StoredTag> tags = run.folders->store(folder)->tags();
    return tags.empty() ? -1 : tags.front().step;
  } catch (const Error&) {  // whatever became of checkpoints beside weights that are taken
    return -1;
  }
}

// The one of the step of the final weights, from which the run may have gone on, or the newest, where there are none.
FoundCheckpoint checkpoint_of(const PreparedRun& run, const std::string& folder) {
  const int64_t wanted = final_step(folder);
  if (wanted >= 0)
    if (FoundCheckpoint same = own_checkpoint(run, folder, tag_of_step(wanted)); same.state) return same;
  FoundCheckpoint newest = own_checkpoint(run, folder, "");
  const int64_t found = newest.state ? step_of(*newest.state) : wanted;
  if (wanted >= 0 && wanted != found)
    return {nullptr, concat("the newest checkpoint is of step ", found, ", and final/ of step ", wanted)};
  return newest;
}

// Whether final/ has a file with every parameter that strategies added.
bool final_has_added(const PreparedRun& run, const std::string& folder) {
  std::set<std::string> missing = run.added_params;
  std::error_code unknown;
  for (const auto& [owner, weights] : strategy_folders(run)) {
    if (!weights.written || !fs::exists(fs::path(folder) / "final" / weights.name / weights.weights_file, unknown))
      continue;
    for (const WeightRule& rule : weights.rules.rules) missing.erase(rule.param);
  }
  return missing.empty();
}

}  // namespace

Value recorded_strategies(const std::string& folder) {
  const Value config = run_config(folder);
  const Value* const section = config.find(Strategy::kKind);
  if (!section) return Value();
  return section->is_array() ? *section : Value(Value::Array{*section});
}

std::string chosen_strategies(const Value& recorded, const Registry& registry) {
  std::vector<std::string> ids;
  for (const Value& entry : recorded.items()) ids.push_back(id_of(entry));
  for (const KnownPlugin& plugin : registry.known())
    if (plugin.is_default && plugin.kind == Strategy::kKind) std::erase(ids, concat(plugin.kind, "/", plugin.name));
  return join(ids);
}

Value acting_strategies(const Value& recorded, const PreparedRun& run, const Registry& registry,
                        const ModelSource& source) {
  Value acting = Value::array();
  for (const Value& entry : recorded.items()) {
    const ChosenPlugin* const plugin = chosen_as(run, id_of(entry));
    const bool acts = !plugin || decorates(*plugin, run, registry);  // one that is switched off stays so
    const Strategy* const strategy = strategy_of(run, id_of(entry));
    const bool merged =
        acts && strategy && source.is_export && !run.added_params.empty() && is_merged(*strategy, id_of(entry), run);
    if (acts && !merged) acting.items().push_back(entry);
  }
  return acting;
}

ModelSource source_with_strategies(const ModelSource& source, const std::string& folder, const PreparedRun& run) {
  if (run.added_params.empty()) return source;
  const FoundCheckpoint found = checkpoint_of(run, folder);
  if (found.state) return {source.recorded, fs::absolute(folder).string(), source.recorded, false, "", found.tag};
  const std::string added =
      concat(one_line(folder), ": the model of this run has ", run.added_params.size(), " parameters (",
             some_names({run.added_params.begin(), run.added_params.end()}), ") that its strategies added");
  if (!final_has_added(run, folder))
    throw fail(ErrorCode::config, added, ", which final/ does not hold; ", found.instead,
               "\n   without them it would be another model: give the run folder with a checkpoint of that step "
               "(checkpoint_policy every with \"at_end\")");
  ModelSource with_final{source.recorded, "", source.recorded};
  with_final.strategies = (fs::absolute(folder) / "final").string();
  const std::string base = plugin_call({run.plan.id_of(Model::kKind), "weights_folder"},
                                       [&] { return run.plugins.model->weights_folder(); });
  if (source.is_export || base.empty())
    throw fail(ErrorCode::config, added, ", and final/ holds these, but not the model that they were trained with; ",
               found.instead, "\n   give the run folder with a checkpoint of that step",
               newest_step(run, folder) < 0 ? std::string()
                                            : concat(", or take its newest: drivetrain checkpoint convert ",
                                                     one_line(folder), " FOLDER --to hf"));
  return with_final;
}

void load_strategy_state(Run& run, const std::string& folder) {
  std::vector<std::string> names;
  const std::vector<const NamedStrategy*> keeping = keeping_state(run, names);
  if (keeping.empty()) return;
  const FoundCheckpoint found = checkpoint_of(run, folder);
  if (!found.state)
    throw fail(ErrorCode::config, one_line(folder), ": what the model of this run computes depends on the state of ",
               keeping.front()->id, " (", some_names(names), "), which only checkpoints hold; ", found.instead,
               "\n   let a run save a checkpoint at its end (checkpoint_policy every with \"at_end\"), or give ",
               one_line(folder), "/final to compute with the weights alone, which is another model");
  if (found.state->facts().find(kAveraged))
    throw fail(ErrorCode::config, one_line(folder), ": is an average of checkpoints, which leaves out the state of ",
               keeping.front()->id, " (", some_names(names),
               "), by which the model computes\n   for the weights alone, ",
               "which are another model: drivetrain checkpoint convert ", one_line(folder), " FOLDER --to hf");
  const Value* const counters = found.state->facts().find("counters");
  LoadState load(*found.state, counters ? *counters : Value::object(), *run.mesh);
  for (const NamedStrategy* const named : keeping) visit_strategy(*named, load);
  load.throw_if_incomplete();
  for (const NamedStrategy* const named : keeping)
    run.log->info(concat(named->id, ": its state is that of the checkpoint"));
}

void say_which_weights(const ModelSource& used, const std::string& folder, const Value& acting,
                       const PreparedRun& run) {
  if (used.recorded.is_null()) return;
  const int64_t final = final_step(folder);
  const std::string name = one_line(folder);
  const int64_t newest = newest_step(run, folder);
  if ((final >= 0 || used.is_export) && newest > final)
    run.log->warning(concat(name, ": these are its final weights, ",
                            final < 0 ? "which do not say their step" : concat("of step ", final),
                            ", and its newest checkpoint is of step ", newest,
                            "\n   for that one's: drivetrain checkpoint convert ", name, " FOLDER --to hf"));
  if (used.is_export || used.weights.empty()) return;
  const FoundCheckpoint found = own_checkpoint(run, folder, used.tag);
  if (!found.state)
    throw fail(ErrorCode::config, name, " holds no model: there are no final weights, and ", found.instead,
               "\n   give a run folder of a finished run or a Hugging Face folder");
  const int64_t saved = step_of(*found.state);
  std::error_code unknown;
  if (final < 0 && fs::exists(fs::path(folder) / "final", unknown))
    run.log->warning(
        concat(name, ": no weights in its final/ say their step; these are of the checkpoint of step ", saved));
  else if (final < 0)
    run.log->info(concat(name, ": has no final weights; these are of its checkpoint of step ", saved));
  std::set<std::string> left = strategies_with_state(*found.state);
  for (const Value& entry : acting.items()) left.erase(id_of(entry));
  for (const std::string& id : left)
    run.log->warning(concat(name, ": what ", id, " keeps in the checkpoint of step ", saved, " has no part in these ",
                            "weights, which are the trained ones; final weights may be made with it",
                            final < 0 ? ": end the run with \"save_final\"" : concat(", see ", name, "/final")));
}

}  // namespace drivetrain
