#include "run/fill_values.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "formats/model_facts.h"
#include "plan/strategy_weights.h"
#include "plugin_calls/plugin_call.h"
#include "state/absent_rows.h"
#include "state/hf_folder.h"
#include "state/initial_values.h"
#include "state/weights.h"

namespace drivetrain {
namespace {

using Names = std::set<std::string>;

// Every parameter under its own name, but those of `elsewhere`. What strategies added need not be there.
WeightRules own_rules(const Run& run, const WeightSource& weights, const Names& elsewhere) {
  WeightRules rules;
  for (const ParamPtr& param : run.model_params) {
    const bool may_lack = run.added_params.count(param->name) > 0 && !weights.contains(param->name);
    if (may_lack || elsewhere.count(param->name)) continue;
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

Names params_of(const WeightRules& rules) {
  Names names;
  for (const WeightRule& rule : rules.rules) names.insert(rule.param);
  return names;
}

// Those of which `names` says that they are in it, or that they are not.
std::vector<Trainables> chosen_of(const std::vector<Trainables>& all, const Names& names, bool in) {
  std::vector<Trainables> chosen(1);
  for (const Trainables& chunk : all)
    for (const Trainable& t : chunk)
      if ((names.count(t.param->name) > 0) == in) chosen.front().push_back(t);
  return chosen;
}

class ValueFill {
 public:
  ValueFill(Run& run, const std::vector<Trainables>& all) : run_(run), all_(all) {}

  void from_model_folder(const std::string& folder) {
    if (HfFolder::has_weights(folder)) return from_hf(folder);
    const OpenedFolder opened = run_.folders->open(folder, run_.values_tag);
    run_.log->info(concat("weights from ", folder, ": ", opened.description));
    const auto weights = weights_of(opened.state, folder);
    if (opened.naming == kNativeNaming) return from_native(*opened.state, *weights, folder);
    const WeightRules rules = model_rules(opened.naming, folder);
    const std::string unsaid = check_model_facts(*opened.state, rules, folder);
    load(*weights, rules);
    if (!unsaid.empty()) run_.log->warning(unsaid);
  }

  // What strategies' layers added, where they name a folder for it. A checkpoint that the values are from has it newer.
  void from_strategy_folders() {
    for (const auto& [owner, folder] : strategy_folders(run_)) {
      const std::string& place = run_.strategies_from;
      const std::string written = folder.name.empty() ? place : place + "/" + folder.name;
      const std::string from = place.empty() ? folder.from : folder.written ? written : "";
      const Names names = params_of(folder.rules);
      const bool known = std::includes(read_.begin(), read_.end(), names.begin(), names.end());
      if (from.empty() || (known && !run_.values_from.empty())) continue;
      load(HfFolder(from, folder.weights_file), folder.rules);
      run_.log->info(concat(owner, ": ", folder.rules.rules.size(), " parameters from ", from));
    }
  }

  void by_rules() const { fill_initial_values(chosen_of(all_, read_, false), run_.services->seed, *run_.mesh); }

  void say_what_starts_anew(const std::string& folder) const {
    std::vector<std::string> anew;
    for (const ParamPtr& param : run_.model_params)
      if (!read_.count(param->name)) anew.push_back(param->name);
    if (!anew.empty())
      run_.log->info(concat(folder, " has no weights for ", anew.size(), " parameters that strategies added (",
                            some_names(anew), "): they start by their own initial rules"));
  }

 private:
  void from_hf(const std::string& folder) {
    const WeightRules rules = model_rules("hf", folder);
    const Names grown = load(HfFolder(folder), rules);
    run_.weights_from = std::filesystem::absolute(folder).lexically_normal().string();
    run_.read_from_there = params_of(rules);
    for (const std::string& name : grown) run_.read_from_there.erase(name);
    refuse_if_lost(grown);
  }

  // Rows that the folder of the model lacks have to be in what a run writes in the end.
  void refuse_if_lost(Names grown) const {
    if (exports_model(run_)) return;
    std::string owner;
    for (const StrategyFolder& written : strategy_folders(run_)) {
      owner = written.owner;
      for (const WeightRule& rule : written.folder.rules.rules) grown.erase(rule.param);
    }
    if (grown.empty()) return;
    throw fail(ErrorCode::config, "rows are added to ", some_names({grown.begin(), grown.end()}), ", and ", owner,
               " keeps the model's weights out of the folder that the run writes in the end, which then has them ",
               "nowhere\n   set that strategy's options so that it writes the model, too, or trains these parameters "
               "as a whole");
  }

  // A checkpoint of ours, which may refer to a folder for what was frozen in its run.
  void from_native(const Checkpoint& state, const WeightSource& weights, const std::string& folder) {
    const FrozenBase base = frozen_base_of(state);
    if (!base.params.empty()) {
      if (run_.services->rank == 0) check_frozen_base(base, base.folder, folder);
      from_hf(base.folder);
      for (const std::string& name : base.params) not_in_base(name, base, folder);
      run_.read_from_there = base.params;
    }
    load(weights, own_rules(run_, weights, base.params));
    if (const std::string unsaid = other_options(run_, state, folder); !unsaid.empty()) run_.log->warning(unsaid);
  }

  void not_in_base(const std::string& name, const FrozenBase& base, const std::string& folder) const {
    if (read_.count(name)) return;
    throw fail(ErrorCode::config, folder, ": refers to ", base.folder, " for ", name, ", which the model does not have",
               "\n   use the model's options of the run that wrote it");
  }

  WeightRules model_rules(const std::string& naming, const std::string& folder) const {
    WeightRules rules = plugin_call({run_.plan.id_of(Model::kKind), "weight_rules"},
                                    [&] { return run_.plugins.model->weight_rules(naming); });
    check_rules(run_, rules, concat("they cannot be read from ", folder));
    return rules;
  }

  // Returns the parameters to which rows were added.
  Names load(const WeightSource& weights, const WeightRules& rules) {
    const Names names = params_of(rules);
    const std::vector<Trainables> targets = chosen_of(all_, names, true);
    for (const std::string& warning : load_weights(weights, rules, targets, *run_.mesh, run_.services->seed))
      run_.log->warning(warning);
    read_.insert(names.begin(), names.end());
    Names grown;
    for (const AddedRows& rows : added_rows(weights, rules)) {
      run_.log->info(concat(rows.param, ": ", rows.added, " rows are added to the ", rows.read, " of ", weights.path(),
                            "; they start ",
                            rows.start == AbsentRows::mean ? "as the mean of those" : "by its initial rule"));
      grown.insert(rows.param);
    }
    return grown;
  }

  Run& run_;
  const std::vector<Trainables>& all_;
  Names read_;
};

// Whether the model's own weights stay those that it was read from.
bool keeps_its_model(const Run& run) {
  if (!exports_model(run)) return true;
  return std::none_of(run.model_params.begin(), run.model_params.end(),
                      [&](const ParamPtr& param) { return param->trainable && !run.added_params.count(param->name); });
}

}  // namespace

void fill_values(Run& run, const std::vector<Trainables>& all) {
  const std::string own = plugin_call({run.plan.id_of(Model::kKind), "weights_folder"},
                                      [&] { return run.plugins.model->weights_folder(); });
  const std::string folder = run.values_from.empty() ? own : run.values_from;
  ValueFill fill(run, all);
  if (!folder.empty()) fill.from_model_folder(folder);
  fill.from_strategy_folders();
  fill.by_rules();
  if (!folder.empty()) fill.say_what_starts_anew(folder);
}

void refer_to_frozen_base(Run& run, bool resumed) {
  const FrozenBase before = std::exchange(run.frozen_base, {});
  if (run.weights_from.empty() || !keeps_its_model(run)) return;
  const Names& there = resumed ? before.params : run.read_from_there;
  FrozenBase base{.folder = run.weights_from, .digest = before.digest, .params = {}};
  for (const ParamPtr& param : run.model_params)
    if (!param->trainable && there.count(param->name)) base.params.insert(param->name);
  if (base.params.empty()) return;
  if (base.digest.empty() && run.services->rank == 0) base.digest = digest_of_weights(HfFolder(base.folder));
  run.log->info(concat("checkpoints refer to ", base.folder, " for ", base.params.size(), " frozen parameters"));
  run.frozen_base = std::move(base);
}

}  // namespace drivetrain
