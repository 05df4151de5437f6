#include "plan/choose_plugins.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/dataset.h>
#include <drivetrain/evaluation.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/monitor.h>
#include <drivetrain/optimizer.h>

#include <drivetrain/toolkit/text.h>

#include "base/value_error.h"
#include "config/eval_sets.h"
#include "config/section_entry.h"
#include "plan/auto_options.h"
#include "plugin/kinds.h"

namespace drivetrain {
namespace {

// The entry of a PluginChoice written out: {"type", "params" with all defaults}. As it is where something is wrong.
Value expanded_choice(const OptionField& field, const Value& entry, const Value& outer, const Registry& registry,
                      const std::string& path, Problems& problems);

// `section` with every PluginChoice written out.
Value expand_choices(const OptionTable& table, Value section, const Registry& registry, const std::string& path,
                     Problems& problems) {
  if (!section.is_object()) return section;
  for (const OptionField& field : table.fields()) {
    if (field.plugin_kind.empty()) continue;
    for (Value::Member& member : section.members())
      if (table.find(member.key) == &field && !member.value.is_null())
        member.value = expanded_choice(field, member.value, section, registry, path + "." + member.key, problems);
  }
  return section;
}

Value expanded_choice(const OptionField& field, const Value& entry, const Value& outer, const Registry& registry,
                      const std::string& path, Problems& problems) {
  const std::optional<SectionEntry> forms = read_section_entry(entry, SectionForm(), path, problems);
  if (!forms) return entry;
  if (forms->type.empty()) {
    problems.add(entry.where,
                 concat(path, " names no plugin\n   write {\"type\": NAME, \"params\": {...}}, with one of: ",
                        join(registry.names(field.plugin_kind))));
    return entry;
  }
  Value params = forms->params;
  try {
    const OptionTable& table = registry.options(field.plugin_kind, forms->type);
    for (const std::string& name : field.inherited)
      if (const Value* given = outer.find(name); given && table.find(name) && !params.find(name))
        params.set(name, *given);
    params = expand_choices(table, params, registry, forms->params_path, problems);
    const size_t before = problems.list().size();
    const auto options = table.parse(params, field.plugin_kind + "/" + forms->type, forms->params_path, problems);
    if (problems.list().size() != before) return entry;
    Value full = Value::Object{{"type", forms->type}, {"params", table.to_value(options.get())}};
    full.where = entry.where;
    return full;
  } catch (const Error& e) {
    problems.add(forms->type_where, concat(path, ": ", e.what()), e.code());
    return entry;
  }
}

// Adds to `list` unless its library is refused, which is one problem of the file among others.
void choose_one(const Selection& selection, const Registry& registry, const AutoFacts& facts,
                std::vector<ChosenPlugin>& list, Problems& problems) {
  ChosenPlugin plugin;
  plugin.selection = selection;
  try {
    const OptionTable& table = registry.options(selection.kind, selection.name);
    plugin.selection.params = with_auto_values(table, selection.params, selection.path, facts, problems);
    plugin.selection.params = expand_choices(table, plugin.selection.params, registry, selection.path, problems);
    plugin.options = table.parse(plugin.selection.params, plugin.id(), selection.path, problems);
  } catch (const Error& e) {
    problems.add(selection.where, e.what(), e.code());
    return;
  }
  for (const Selection& next : selection.fallbacks) choose_one(next, registry, facts, plugin.fallbacks, problems);
  list.push_back(std::move(plugin));
}

// DeepSpeed's files often leave the optimizer to the program that reads them, and every number depends on it.
void name_default_optimizer(const std::vector<ChosenPlugin>& chosen, const Registry& registry, Problems& problems) {
  for (const ChosenPlugin& plugin : chosen) {
    if (plugin.kind() != Optimizer::kKind || !plugin.selection.where.file.empty() || !plugin.options) continue;
    const Value options = registry.options(plugin.kind(), plugin.name()).to_value(plugin.options.get());
    const Value* const lr = options.find("lr");
    problems.resolve({}, Optimizer::kKind, lr ? concat(plugin.name(), ", lr ", lr->to_json()) : plugin.name(),
                     "no such section: the default");
  }
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

// 0 where the key is missing or wrong, which is told with the other settings.
int64_t train_steps_of(const Value& config) {
  const Value* const steps = config.find("train_steps");
  const bool whole = steps && steps->is_number() && steps->as_double() == std::floor(steps->as_double());
  return whole ? steps->as_int() : 0;
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
  else if (std::any_of(problems.list().begin(), problems.list().end(), [](const Problem& problem) {
             return problem.message.find(kMissingFolder) != std::string::npos;
           }))
    problems.add({}, registry.searched());
  const ConfigFacts facts(selections, registry, train_steps_of(config));
  for (const Selection& selection : selections) choose_one(selection, registry, facts, chosen, problems);
  name_default_optimizer(chosen, registry, problems);
  if (purpose != Purpose::train) return chosen;
  for (ChosenPlugin& set : choose_eval_sets(config, registry, problems)) chosen.push_back(std::move(set));
  return chosen;
}

std::vector<ChosenPlugin> choose_eval_sets(const Value& config, const Registry& registry, Problems& problems) {
  std::vector<ChosenPlugin> chosen;
  const std::vector<Selection> sets = read_eval_sets(config, problems);
  const ConfigFacts facts(sets, registry, 0);
  for (const Selection& set : sets) choose_one(set, registry, facts, chosen, problems);
  return chosen;
}

}  // namespace drivetrain
