// From a config file to the list of plugins with parsed options.
#include <algorithm>

#include "compose/composition.h"
#include "plugin/kinds.h"

namespace drivetrain {
namespace {

constexpr const char* kTrainingOnly[] = {"dataset", "optimizer", "lr_schedule", "monitor"};

bool training_only(const std::string& kind) {
  return std::find(std::begin(kTrainingOnly), std::end(kTrainingOnly), kind) != std::end(kTrainingOnly);
}

}  // namespace

std::vector<ChosenPlugin> choose_plugins(const Value& config, Registry& registry, const std::string& device, bool training,
                                         Problems& problems) {
  std::vector<ChosenPlugin> chosen;
  for (const Selection& selection : select_plugins(config, kind_rules(), registry.known(), device, problems)) {
    if (!training && training_only(selection.kind)) continue;
    ChosenPlugin plugin;
    plugin.kind = selection.kind;
    plugin.name = selection.name;
    try {
      const OptionTable& table = registry.options(selection.kind, selection.name);
      plugin.options = table.parse(selection.params, plugin.id(), selection.path, problems);
      plugin.options_value = table.to_value(plugin.options.get());
    } catch (const Error& e) {  // a refused library is one problem among others
      problems.add(selection.where, e.what(), e.code());
      continue;
    }
    chosen.push_back(std::move(plugin));
  }
  return chosen;
}

}  // namespace drivetrain
