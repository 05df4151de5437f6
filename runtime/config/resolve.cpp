// The configuration as a file that gives the same run again.
#include <algorithm>

#include "config/eval_sets.h"
#include "config/section_words.h"

namespace drivetrain {
namespace {

Value section_value(const Selection& selection, const std::function<Value(const Selection&)>& options_of) {
  Value section = Value::Object{{"type", selection.name}, {"params", options_of(selection)}};
  if (!selection.outside_of.empty()) section.set(kOutsideOf, selection.outside_of);
  return section;
}

Value settings_value(const RunSettings& settings, const BatchSizes& batch) {
  RunSettings full = settings;
  full.train_batch_size = batch.train_batch_size;
  full.micro_batch_size = batch.micro_batch_size;
  full.accumulation = batch.accumulation;
  Value value = run_settings_table().to_value(&full);
  if (settings.groups.empty()) value.erase("param_groups");
  return value;
}

// The section without sets says nothing.
void set_eval(Value& config, const std::vector<Selection>& selections,
              const std::function<Value(const Selection&)>& options_of) {
  Value sets = Value::object();
  for (const Selection& s : selections)
    if (!s.set.empty()) sets.set(s.set, eval_set_value(s, options_of(s)));
  if (sets.members().empty())
    config.erase("eval");
  else
    const_cast<Value*>(config.find("eval"))->set("sets", std::move(sets));
}

// One value per plugin that is on, then one per default that the file switched off.
Value::Array entries_of(const std::string& kind, const std::vector<Selection>& selections,
                        const std::vector<KnownPlugin>& plugins, const std::string& device,
                        const std::function<Value(const Selection&)>& options_of) {
  Value::Array entries;
  const auto is_on = [&](const std::string& name) {
    return std::any_of(selections.begin(), selections.end(),
                       [&](const Selection& s) { return s.enabled && s.kind == kind && s.name == name; });
  };
  for (const Selection& s : selections) {
    if (s.enabled && s.kind == kind) entries.push_back(section_value(s, options_of));
  }
  for (const KnownPlugin& p : plugins) {
    const bool here = p.kind == kind && p.is_default && (p.device.empty() || p.device == device);
    if (here && !is_on(p.name)) entries.push_back(Value::Object{{"type", p.name}, {"enabled", false}});
  }
  return entries;
}

}  // namespace

Value resolved_config(const RunSettings& settings, const BatchSizes& batch, const std::vector<Selection>& selections,
                      const std::vector<KindRule>& kinds, const std::vector<KnownPlugin>& plugins,
                      const std::function<Value(const Selection&)>& options_of) {
  Value config = settings_value(settings, batch);
  set_eval(config, selections, options_of);
  for (const KindRule& rule : kinds) {
    Value::Array entries = entries_of(rule.kind, selections, plugins, settings.device, options_of);
    if (entries.empty()) continue;
    if (rule.count == KindRule::any_number)
      config.set(rule.key(), Value(std::move(entries)));
    else
      config.set(rule.key(), entries.front());
  }
  return config;
}

}  // namespace drivetrain
