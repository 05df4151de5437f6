#include "checkpoint_tools/convert.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "checkpoint/saver.h"
#include "formats/frozen_base.h"
#include "formats/model_facts.h"
#include "formats/state_names.h"
#include "plan/strategy_weights.h"
#include "plugin_calls/plugin_call.h"
#include "state/foreign_tensors.h"
#include "state/new_file.h"
#include "state/weights.h"
#include "train/base_weights.h"
#include "train/config_changes.h"
#include "train/exported_weights.h"
#include "train/resume.h"
#include "train/strategy_state.h"

namespace drivetrain {
namespace {

constexpr uint64_t kWrittenTogether = uint64_t{256} << 20;  // bytes

WeightRules rules_of(const PreparedRun& run, const std::string& naming) {
  const std::string model = run.plan.id_of(Model::kKind);
  return plugin_call({model, "weight_rules"}, [&] { return run.plugins.model->weight_rules(naming); });
}

int64_t integer_of(const Value& facts, const char* key, int64_t otherwise) {
  const Value* value = facts.find(key);
  return value && value->is_int() ? value->as_int() : otherwise;
}

// How many steps are done, as any of the formats says it.
constexpr int64_t kMostSteps = int64_t{1} << 53;

int64_t step_of(const Value& facts) {
  if (const Value* counters = facts.find("counters")) return integer_of(*counters, "trainer/next_step", 1) - 1;
  const int64_t step = integer_of(facts, "step", 0);
  if (step < 0 || step > kMostSteps)
    throw fail(ErrorCode::checkpoint, "the checkpoint says that it is of step ", step, ": it is damaged or was edited");
  return step;
}
int64_t updates_of(const Value& facts) {
  if (const Value* counters = facts.find("counters")) return integer_of(*counters, "finish/updates", step_of(facts));
  return integer_of(facts, "updates", step_of(facts));
}

// The counters of the training loop and its loss scale (Trainer::state, Finish::state, LossScaler::state).
Value counters_of(const Value& facts) {
  if (const Value* own = facts.find("counters")) return *own;
  Value counters = Value::object();
  counters.set("trainer/next_step", step_of(facts) + 1);
  counters.set("finish/updates", updates_of(facts));
  counters.set("finish/tokens_seen", int64_t{0});
  counters.set("finish/skipped_in_a_row", int64_t{0});
  if (const Value* scaler = facts.find("loss_scaler")) {
    for (const char* name : {"scale", "tolerance", "steps", "last_overflow"})
      if (const Value* value = scaler->find(name)) counters.set(concat("finish/loss_scaler/", name), *value);
  }
  return counters;
}

// The learning rate of the step after the checkpoint's, by the schedule of the run that saved it.
std::optional<double> next_rate(const Value& facts, const Value& config, const FolderReaders& folders) {
  const Value* params = config.find("optimizer") ? config.find("optimizer")->find("params") : nullptr;
  const Value* scheduler = config.find("scheduler");
  const Value* base = params ? params->find("lr") : nullptr;
  const Value* type = scheduler ? scheduler->find("type") : nullptr;
  const Value* options = scheduler ? scheduler->find("params") : nullptr;
  if (!base || !base->is_number() || !type || !options) return std::nullopt;
  Problems problems;
  const Registry& registry = folders.registry();
  const auto parsed =
      registry.options(LrSchedule::kKind, type->as_string()).parse(*options, "scheduler", "scheduler", problems);
  problems.throw_if_any();
  const auto schedule = registry.create<LrSchedule>(type->as_string(), parsed.get(), folders.services());
  Progress progress;
  progress.updates = updates_of(facts);
  progress.samples = progress.updates * integer_of(config, "train_batch_size", 0);
  progress.train_steps = integer_of(config, "train_steps", progress.train_steps);
  if (const Value* counters = facts.find("counters")) progress.tokens = integer_of(*counters, "finish/tokens_seen", 0);
  return schedule->at(progress, {base->as_double(), 0, 0}).lr;
}

// What the run that saved was told, or did, otherwise.
void say_other_settings(const Value& facts, const Value& config, const PreparedRun& run) {
  constexpr size_t kMost = 12;
  std::vector<std::string> lines;
  if (const Value* settings = facts.find("settings"))
    for (const ConfigChange& change : common_changes(*settings, config)) lines.push_back(change.text());
  const Value* const rate = facts.find("lr");
  if (const auto ours = rate && rate->is_number() ? next_rate(facts, config, *run.folders) : std::nullopt)
    if (std::abs(*ours - rate->as_double()) > 1e-6 * std::abs(rate->as_double()))
      lines.push_back(concat("the rate of the next step: ", rate->as_double(), " then, ", *ours, " now"));
  if (lines.empty()) return;
  const size_t more = lines.size() - std::min(lines.size(), kMost);
  lines.resize(lines.size() - more);
  run.log->warning(concat("training goes on by CONFIG, which differs from what the run that saved was told: ",
                          join(lines, "; "), more ? concat(" and ", more, " more") : ""));
}

void check_moments(const std::vector<StoredTensor>& tensors, const PreparedRun& run) {
  const std::string owner = run.plan.id_of(Optimizer::kKind) + "/";
  std::set<std::string> with;  // parameters
  for (const StoredTensor& t : tensors)
    if (const size_t dot = t.name.rfind('.'); t.name.starts_with(owner) && dot > owner.size())
      with.insert(t.name.substr(owner.size(), dot - owner.size()));
  std::vector<std::string> without;
  for (const ParamPtr& param : run.model_params)
    if (param->trainable && !with.count(param->name)) without.push_back(param->name);
  const std::string remedy = "\n   begin a new run with these weights: --set model.params.from=FOLDER";
  if (with.empty())
    throw fail(ErrorCode::checkpoint, "the checkpoint holds no state of ", run.plan.id_of(Optimizer::kKind),
               ", without which a run cannot go on from it", remedy);
  if (!without.empty())
    throw fail(ErrorCode::checkpoint, "the checkpoint holds no state of ", run.plan.id_of(Optimizer::kKind), " for ",
               without.size(), " of ", run.model_params.size(), " parameters (", without.front(),
               without.size() > 1 ? ", ...)" : ")", ": they were not trained there, and the run of CONFIG trains them",
               remedy);
}

// As many at a time as fit the memory: each group is what one rank would have written.
std::vector<std::vector<StoredTensor>> groups_of(std::vector<StoredTensor> tensors) {
  std::vector<std::vector<StoredTensor>> groups(1);
  uint64_t bytes = 0;
  for (StoredTensor& t : tensors) {
    const StateBox box = whole_box(t.shape);
    const uint64_t more = static_cast<uint64_t>(box.rows * box.columns) * c10::elementSize(t.dtype);
    if (bytes > 0 && bytes + more > kWrittenTogether) groups.emplace_back(), bytes = 0;
    bytes += more;
    groups.back().push_back(std::move(t));
  }
  return groups;
}

void write_tag(CheckpointStore& store, const Checkpoint& state, const std::vector<StoredTensor>& tensors,
               const Value& facts) {
  const int64_t step = step_of(facts);
  const std::string tag = tag_of_step(step);
  const auto groups = groups_of(tensors);
  std::vector<Value> parts;
  try {
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      Snapshot snapshot;
      snapshot.tag = tag, snapshot.step = step;
      snapshot.rank = static_cast<int64_t>(rank), snapshot.world_size = static_cast<int64_t>(groups.size());
      for (const StoredTensor& t : groups[rank]) {
        const StateBox box = whole_box(t.shape);
        const at::Tensor values = at::empty({box.rows, box.columns}, at::TensorOptions(t.dtype));
        state.read(t.name, box, values);
        snapshot.slices.push_back({t.name, t.shape, box, values});
      }
      parts.push_back(store.write(snapshot));
    }
    store.commit(tag, step, facts, parts);
  } catch (...) {
    store.discard(tag);  // it may lie outside of the folder that goes away
    throw;
  }
}

// That the weights are the model's: neither of another shape, nor missing, nor more.
void check_weights(const Checkpoint& state, const ParamShapes& shapes) {
  constexpr size_t kMost = 10;
  std::vector<std::string> problems;
  ParamShapes missing = shapes;
  for (const StoredTensor& t : state.tensors()) {
    if (!t.name.starts_with(kModelNames)) continue;
    const auto found = shapes.find(t.name.substr(kModelNames.size()));
    if (found == shapes.end())
      problems.push_back(t.name + " belongs to nothing in the model");
    else if (found->second != t.shape)
      problems.push_back(concat(t.name, " has shape ", at::IntArrayRef(t.shape), "; the model's has ",
                                at::IntArrayRef(found->second)));
    missing.erase(t.name.substr(kModelNames.size()));
  }
  for (const auto& [name, shape] : missing) problems.push_back(concat(kModelNames, name, " is missing"));
  if (problems.empty()) return;
  std::string text = "the checkpoint does not fit the model:";
  for (size_t i = 0; i < std::min(problems.size(), kMost); ++i) text += "\n   " + problems[i];
  if (problems.size() > kMost) text += concat("\n   and ", problems.size() - kMost, " more");
  throw fail(ErrorCode::checkpoint, text, "\n   use the config of the run that wrote it: --config RUN/resolved.json");
}

// A checkpoint with the frozen weights that it refers to.
class Completed final : public Checkpoint {
 public:
  Completed(std::shared_ptr<const Checkpoint> state, std::shared_ptr<const Checkpoint> base,
            const std::set<std::string>& params)
      : state_(std::move(state)), base_(std::move(base)) {
    for (const std::string& param : params) in_base_.insert(kModelNames + param);
  }
  const Value& facts() const override { return state_->facts(); }
  std::vector<StoredTensor> tensors() const override {
    std::vector<StoredTensor> all = state_->tensors();
    for (StoredTensor& t : base_->tensors())
      if (in_base_.count(t.name)) all.push_back(std::move(t));
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return all;
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    (in_base_.count(name) ? base_ : state_)->read(name, box, into);
  }
  std::vector<std::string> verify() const override { return state_->verify(); }

 private:
  const std::shared_ptr<const Checkpoint> state_, base_;
  std::set<std::string> in_base_;
};

std::shared_ptr<const Checkpoint> with_frozen_base(std::shared_ptr<const Checkpoint> state, const PreparedRun& run,
                                                   const std::string& folder) {
  const FrozenBase base = frozen_base_of(*state);
  if (base.params.empty()) return state;
  check_frozen_base(base, base.folder, folder);
  const std::string optimizer = concat(kOptimizerNames, "none");  // a folder of weights has no moments
  auto values =
      as_native(run.folders->open(base.folder).state, rules_of(run, "hf"), param_shapes(run), optimizer, base.params);
  return std::make_shared<Completed>(std::move(state), std::move(values), base.params);
}

// Other programs' checkpoints have moments beside the weights, which nothing can be merged into.
void check_nothing_added(const PreparedRun& run) {
  if (run.added_params.empty()) return;
  throw fail(ErrorCode::config, "the checkpoint holds ", run.added_params.size(), " parameters that strategies added (",
             some_names({run.added_params.begin(), run.added_params.end()}),
             "), and a checkpoint of another program has no place for them\n   ",
             "merge them into the model's weights: checkpoint convert --to hf");
}

}  // namespace

ParamShapes param_shapes(const PreparedRun& run) {
  ParamShapes shapes;
  for (const ParamPtr& param : run.model_params) shapes[param->name] = param->layout.global_shape;
  return shapes;
}

std::shared_ptr<const Checkpoint> native_state(const OpenedFolder& opened, const PreparedRun& run,
                                               const std::string& folder) {
  if (opened.naming == kNativeNaming) {
    const auto state = with_frozen_base(opened.state, run, folder);
    return check_weights(*state, param_shapes(run)), state;
  }
  const std::string optimizer = run.plugins.optimizer ? run.plan.id_of(Optimizer::kKind) : std::string("optimizer/any");
  const WeightRules rules = rules_of(run, opened.naming);
  if (const std::string unsaid = check_model_facts(*opened.state, rules, folder); !unsaid.empty())
    run.log->warning(unsaid);
  return as_native(opened.state, rules, param_shapes(run), optimizer);
}

void write_hf(const std::string& to, const Checkpoint& state, const PreparedRun& run, const ExportSource& source) {
  const ParamShapes shapes = param_shapes(run);
  const auto fetch = [&](const std::string& name) {
    const std::vector<int64_t>& shape = shapes.at(name);
    const StateBox box = whole_box(shape);
    const at::Tensor values = at::empty({box.rows, box.columns}, at::TensorOptions(at::kFloat));
    state.read(kModelNames + name, box, values);
    return values.view(shape);
  };
  const TokenizerReaders readers(run.folders->registry(), run.folders->services());
  std::vector<ExportedWeights> sets{merged_model(run, fetch)};
  name_left_state(sets.front(), run);
  sets.front().extras = export_extras(sets.front().rules, source, readers, *run.log);
  for (ExportedWeights& added : added_weights(run, fetch)) {
    // A reader of the model would apply once more what is merged already.
    if (added.folder.empty())
      run.log->info(concat(added.weights_file, " is not written: its values are merged into the model's weights"));
    else
      sets.push_back(std::move(added));
  }
  name_base(sets, frozen_base_of(state));
  save_weights(to, sets, shapes, step_of(state.facts()));
}

void write_format(const std::string& to, const CheckpointFormat& format, const std::string& naming,
                  std::shared_ptr<const Checkpoint> state, const PreparedRun& run) {
  Value facts = Value::object();
  facts.set("naming", naming), facts.set("step", step_of(state->facts())),
      facts.set("updates", updates_of(state->facts()));
  if (const Value* scaler = state->facts().find("loss_scaler")) facts.set("loss_scaler", *scaler);
  if (const Value* config = state->facts().find("config"))
    if (const Value* optimizer = config->find("optimizer")) {
      if (const auto rate = next_rate(state->facts(), *config, *run.folders)) facts.set("lr", *rate);
      if (const Value* type = optimizer->find("type")) facts.set("optimizer_type", *type);
      if (const Value* params = optimizer->find("params")) facts.set("optimizer_options", *params);
    }
  check_nothing_added(run);
  const WeightRules rules = rules_of(run, naming);
  Value tied = Value::object();
  for (const auto& [name, param] : rules.tied)
    for (const WeightRule& rule : rules.rules)
      if (rule.param == param && rule.parts.size() == 1) tied.set(name, written_name(rules, rule.parts.front()));
  facts.set("tied", std::move(tied));
  const auto foreign = as_foreign(std::move(state), rules, param_shapes(run), std::move(facts));
  NewFolder target(to);
  format.write(target.temporary(), *foreign);
  target.commit();
}

void write_run_folder(const std::string& to, const Checkpoint& state, const PreparedRun& run, const Value& config,
                      const Value& written) {
  std::vector<StoredTensor> tensors = state.tensors();
  std::erase_if(tensors, [](const StoredTensor& t) {
    return !t.name.starts_with(kModelNames) && !t.name.starts_with(kOptimizerNames);
  });
  check_moments(tensors, run);
  say_other_settings(state.facts(), config, run);
  Value facts = Value::object();
  facts.set("config", config);
  facts.set("counters", counters_of(state.facts()));
  facts.set("figures", Value::object());
  CheckpointStore* const store = run.plugins.checkpoint_store.get();  // which the run will look into
  if (!store)
    throw fail(ErrorCode::config,
               "checkpoint_store is false in the config, and a run goes on from a checkpoint only\n   ",
               "leave the section out");
  NewFolder target(to);
  plugin_call({run.plan.id_of(CheckpointStore::kKind), "open_place"},
              [&] { store->open_place(std::filesystem::absolute(target.temporary()).string(), true); });
  check_no_tags(*store, to);
  write_tag(*store, state, tensors, facts);
  const std::string text = written.to_json(2) + "\n";
  NewFile resolved(target.temporary() + "/resolved.json", text.size());
  resolved.write_at(0, text.data(), text.size());
  resolved.commit();
  target.commit();
}

}  // namespace drivetrain
