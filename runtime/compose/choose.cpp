// From a config file to the list of plugins with parsed options.
#include <algorithm>

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

bool training_only(const std::string& kind) {
  return kind == Dataset::kKind || kind == Optimizer::kKind || kind == LrSchedule::kKind || kind == Monitor::kKind;
}

std::vector<KindRule> kinds_for(Purpose purpose) {
  std::vector<KindRule> rules = kind_rules();
  if (purpose != Purpose::train) std::erase_if(rules, [](const KindRule& rule) { return training_only(rule.kind); });
  return rules;
}

// The device to look for plugins with: every kind complaining that it has none for an absent device would not help.
std::string device_that_is_there(const Value& config, const std::string& device, Problems& problems) {
  if (device != "cuda") return device;
  const Value* given = config.find("device");
  problems.add(given ? given->where : Position{},
               "\"device\": \"cuda\" is not in this version\n   use \"device\": \"cpu\"");
  return "cpu";
}

}  // namespace

std::vector<ChosenPlugin> choose_plugins(const Value& config, const Registry& registry, const std::string& device,
                                         Problems& problems, Purpose purpose) {
  std::vector<ChosenPlugin> chosen;
  const auto selections = select_plugins(config, kinds_for(purpose), registry.known(),
                                         device_that_is_there(config, device, problems), problems);
  const auto missing = [](const Problem& problem) { return problem.code == ErrorCode::plugin; };
  if (std::any_of(problems.list().begin(), problems.list().end(), missing))
    problems.add({}, registry.searched(), ErrorCode::plugin);
  for (const Selection& selection : selections) choose_one(selection, registry, chosen, problems);
  return chosen;
}

}  // namespace drivetrain
