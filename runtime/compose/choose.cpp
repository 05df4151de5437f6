// From a config file to the list of plugins with parsed options.
#include "compose/composition.h"
#include "plugin/kinds.h"

namespace drivetrain {
namespace {

// Adds to `list` unless its library is refused, which is one problem of the file among others.
void choose_one(const Selection& selection, const Registry& registry, std::vector<ChosenPlugin>& list, Problems& problems) {
  ChosenPlugin plugin;
  plugin.selection = selection;
  try {
    plugin.options = registry.options(selection.kind, selection.name)
                         .parse(selection.params, plugin.id(), selection.path, problems);
  } catch (const Error& e) {
    problems.add(selection.where, e.what(), e.code());
    return;
  }
  for (const Selection& next : selection.fallbacks) choose_one(next, registry, plugin.fallbacks, problems);
  list.push_back(std::move(plugin));
}

}  // namespace

std::vector<ChosenPlugin> choose_plugins(const Value& config, const Registry& registry, const std::string& device,
                                         Problems& problems) {
  std::vector<ChosenPlugin> chosen;
  for (const Selection& selection : select_plugins(config, kind_rules(), registry.known(), device, problems))
    choose_one(selection, registry, chosen, problems);
  return chosen;
}

}  // namespace drivetrain
