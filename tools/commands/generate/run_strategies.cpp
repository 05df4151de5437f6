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

// After which step it was saved; -1: it does not say.
int64_t step_of(const Checkpoint& state) {
  const Value* const counters = state.facts().find("counters");
  const Value* const next = counters ? counters->find("trainer/next_step") : nullptr;
  return next && next->is_int() ? next->as_int() - 1 : -1;
}

// A checkpoint of the run; null: it has none, or none of that tag.
std::shared_ptr<const Checkpoint> own_checkpoint(const PreparedRun& run, const std::string& folder,
                                                 const std::string& tag) {
  try {
    const OpenedFolder opened = run.folders->open(folder, tag);
    return opened.naming == kNativeNaming ? opened.state : nullptr;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::config) throw;
    return nullptr;
  }
}

struct FoundCheckpoint {
  std::shared_ptr<const Checkpoint> state;  // null: there is none of the step
  std::string instead;                      // what there is
};

// The newest checkpoint, if the final weights, where there are some, are of its step. `any`: an older one of their
// step will do, too.
FoundCheckpoint checkpoint_of(const PreparedRun& run, const std::string& folder, bool any = false) {
  const int64_t wanted = final_step(folder);
  if (any && wanted >= 0)
    if (auto older = own_checkpoint(run, folder, tag_of_step(wanted))) return {older, ""};
  const auto newest = own_checkpoint(run, folder, "");
  if (!newest) return {nullptr, "the run has no checkpoint"};
  const int64_t found = step_of(*newest);
  if (wanted >= 0 && wanted != found)
    return {nullptr, concat("the newest checkpoint is of step ", found, ", and final/ of step ", wanted)};
  return {newest, ""};
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

// What strategies that are not in `acting` keep in a checkpoint: their ids.
std::vector<std::string> left_out(const Checkpoint& state, const Value& recorded, const Value& acting) {
  std::set<std::string> acts;
  for (const Value& entry : acting.items()) acts.insert(id_of(entry));
  std::vector<std::string> left;
  for (const Value& entry : recorded.items()) {
    const std::string id = id_of(entry);
    const std::vector<StoredTensor> tensors = state.tensors();
    const auto is_its_own = [&](const StoredTensor& tensor) { return tensor.name.starts_with(id + "/"); };
    if (!acts.contains(id) && std::any_of(tensors.begin(), tensors.end(), is_its_own)) left.push_back(id);
  }
  return left;
}

}  // namespace

Value recorded_strategies(const std::string& folder) {
  const Value config = run_config(folder);
  const Value* const section = config.find(Strategy::kKind);
  if (!section) return Value();
  return section->is_array() ? *section : Value(Value::Array{*section});
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
  if (found.state) return {source.recorded, fs::absolute(folder).string(), source.recorded};
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
               found.instead, "\n   give the run folder with a checkpoint of that step");
  return with_final;
}

void load_strategy_state(Run& run, const std::string& folder) {
  std::vector<std::string> names;
  const std::vector<const NamedStrategy*> keeping = keeping_state(run, names);
  if (keeping.empty()) return;
  const FoundCheckpoint found = checkpoint_of(run, folder, true);
  if (!found.state)
    throw fail(ErrorCode::config, one_line(folder), ": what the model of this run computes depends on the state of ",
               keeping.front()->id, " (", some_names(names), "), which only checkpoints hold; ", found.instead,
               "\n   let a run save a checkpoint at its end (checkpoint_policy every with \"at_end\"), or give ",
               one_line(folder), "/final to compute with the weights alone, which is another model");
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
  const auto newest = own_checkpoint(run, folder, "");
  const bool is_final = used.is_export || used.weights.empty();
  if (!newest && !is_final)
    throw fail(ErrorCode::config, one_line(folder), " holds no model: the run has neither final weights nor a ",
               "checkpoint. Give a run folder of a finished run or a Hugging Face folder");
  if (!newest) return;
  const int64_t final = final_step(folder), saved = step_of(*newest);
  if (is_final) {
    if (final >= 0 && saved > final)
      run.log->warning(concat(
          one_line(folder), ": these are its final weights, of step ", final, ", and its newest checkpoint is of step ",
          saved, "\n   for that one's: drivetrain checkpoint convert ", one_line(folder), " FOLDER --to hf"));
    return;
  }
  if (final < 0)
    run.log->info(concat(one_line(folder), ": has no final weights; these are of its checkpoint of step ", saved));
  for (const std::string& id : left_out(*newest, recorded_strategies(folder), acting))
    run.log->warning(concat(one_line(folder), ": what ", id, " keeps in the checkpoint of step ", saved,
                            " has no part in these weights, which are the trained ones; final weights may be made "
                            "with it: end the run with \"save_final\""));
}

}  // namespace drivetrain
