#include "train/exported_weights.h"

#include <utility>

#include "plan/strategy_weights.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {

ExportedWeights merged_model(const PreparedRun& run, const FetchParam& whole) {
  ExportedWeights model;
  model.rules = plugin_call({run.plan.id_of(Model::kKind), "weight_rules"},
                            [&] { return run.plugins.model->weight_rules("hf"); });
  check_rules(run, model.rules, "they would be missing in the folder of weights");
  model.fetch = [&run, whole](const std::string& name) { return merged(run, name, whole(name), whole); };
  return model;
}

std::vector<ExportedWeights> added_weights(const PreparedRun& run, const FetchParam& whole) {
  std::vector<ExportedWeights> sets;
  for (StrategyFolder& added : strategy_folders(run)) {
    if (!added.folder.written) continue;
    ExportedWeights set;
    set.rules = std::move(added.folder.rules), set.fetch = whole, set.folder = added.folder.name;
    set.weights_file = added.folder.weights_file, set.config_file = added.folder.config_file;
    sets.push_back(std::move(set));
  }
  return sets;
}

std::vector<ExportedWeights> exported_weights(const PreparedRun& run, const FetchParam& whole) {
  std::vector<ExportedWeights> sets = added_weights(run, whole);
  if (!sets.empty() && !exports_model(run)) return sets;
  // A reader of the model would take an adapter that lies among its files for one that is still to be applied.
  for (const ExportedWeights& set : sets)
    if (set.folder.empty())
      throw fail(ErrorCode::plugin, "weight_folders: a folder without a name of its own (", set.weights_file,
                 ") would lie among the files of the model's weights, which are written too");
  sets.insert(sets.begin(), merged_model(run, whole));
  return sets;
}

}  // namespace drivetrain
