#include "plan/choose_plugins.h"

#include <algorithm>

#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/dataset.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/monitor.h>
#include <drivetrain/optimizer.h>

#include "plugin/kinds.h"

namespace drivetrain {
namespace {

// Adds to `list` unless its library is refused, which is one problem of the file among others.
void choose_one(const Selection& selection, const Registry& registry, std::vector<ChosenPlugin>& list,
                Problems& problems) {
  ChosenPlugin plugin;
  plugin.selection = selection;
  try {
    plugin.options =
        registry.options(selection.kind, selection.name).parse(selection.params, plugin.id(), selection.path, problems);
  } catch (const Error& e) {
    problems.add(selection.where, e.what(), e.code());
    return;
  }
  for (const Selection& next : selection.fallbacks) choose_one(next, registry, plugin.fallbacks, problems);
  list.push_back(std::move(plugin));
}

// A key at the top level that one of the file's plugins has as an option.
std::string home_of(const std::string& key, const std::vector<Selection>& selections, const Registry& registry) {
  for (const Selection& s : selections) {
    if (!s.enabled) continue;
    try {
      if (!registry.options(s.kind, s.name).find(key)) continue;
    } catch (const Error&) {  // told where it is chosen
      continue;
    }
    return concat(s.kind, "/", s.name, ": move it into \"", s.path, "\"");
  }
  return {};
}

bool training_only(const std::string& kind) {
  for (const char* one : {Dataset::kKind, Optimizer::kKind, LrSchedule::kKind, Monitor::kKind, CheckpointStore::kKind,
                          CheckpointPolicy::kKind})
    if (kind == one) return true;
  return false;
}

std::vector<KindRule> kinds_for(Purpose purpose) {
  std::vector<KindRule> rules = chosen_kind_rules();
  if (purpose != Purpose::train) std::erase_if(rules, [](const KindRule& rule) { return training_only(rule.kind); });
  return rules;
}

}  // namespace

std::vector<ChosenPlugin> choose_plugins(const Value& config, const Registry& registry, const std::string& device,
                                         Problems& problems, Purpose purpose) {
  std::vector<ChosenPlugin> chosen;
  const auto selections =
      select_plugins(config, kinds_for(purpose), registry.known(), device, problems,
                     [&](const std::string& key, const auto& selected) { return home_of(key, selected, registry); });
  const auto missing = [](const Problem& problem) { return problem.code == ErrorCode::plugin; };
  if (std::any_of(problems.list().begin(), problems.list().end(), missing))
    problems.add({}, registry.searched(), ErrorCode::plugin);
  for (const Selection& selection : selections) choose_one(selection, registry, chosen, problems);
  return chosen;
}

}  // namespace drivetrain
