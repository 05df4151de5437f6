// Which plugin each section means. Nothing here knows a plugin: manifests are the data, and known_sections.json for
// what no installed plugin claims.
#include "config/sections.h"

#include <algorithm>
#include <map>

#include "base/printable.h"
#include "base/suggest.h"
#include "base/value_error.h"
#include "config/auto_switches.h"
#include "config/known_keys.h"
#include "config/plugin_index.h"
#include "config/section_place.h"

namespace drivetrain {
namespace {

class Selector {
 public:
  Selector(const Value& config, const std::vector<KindRule>& kinds, const std::vector<KnownPlugin>& plugins,
           const std::string& device, Problems& problems, const OptionHome& home_of)
      : kinds_(kinds),
        plugins_(plugins),
        installed_(plugins, device),
        problems_(problems),
        home_of_(home_of),
        config_(with_switches(
            config, [this](const std::string& key) { return section_fact(key); },
            [this](const std::string& kind) { return !is_any_number(kind); }, device, problems)) {}

  std::vector<Selection> select() {
    for (const Value::Member& m : config_.members()) read_key(m.key, m.value);
    std::vector<Selection> all;
    for (const KindRule& rule : kinds_) finish_kind(rule, all);
    for (const auto& [key, value] : unknown_) unknown_key(key, *value, all);
    return all;
  }

 private:
  struct Chosen {
    std::string section;
    Selection selection;
  };

  // -- top-level keys

  void read_key(const std::string& key, const Value& value) {
    if (key.starts_with('_') || key.starts_with('$') || run_settings_table().find(key)) return;
    const auto fact = known_sections().keys.find(key);
    if (const auto section = section_fact(key))
      read_section(key, *section, value);
    else if (fact != known_sections().keys.end())
      check_known_key(key, fact->second, value, config_, problems_);
    else
      unknown_.emplace_back(key, &value);  // once it is known which plugins the file asks for
  }

  // A claim comes before the table of other programs' sections, so that a plugin may bring any section.
  std::optional<SectionFact> section_fact(const std::string& key) const {
    const std::optional<SectionForm> claimed = installed_.form_of(key);
    for (const KindRule& rule : kinds_)
      if (!rule.section.empty() && rule.section == key)
        return SectionFact{rule.kind, false, claimed.value_or(SectionForm())};
    for (const KnownPlugin& p : plugins_)
      if (p.claims(key)) return SectionFact{p.kind, true, *claimed};  // the plugin alone, not its kind's default
    const auto known = known_sections().sections.find(key);
    if (known != known_sections().sections.end()) return known->second;
    return rule_of(key) ? std::optional(SectionFact{key, false, {}}) : std::nullopt;
  }

  // Where several plugins claim a section, the type that a value names decides how that value may be written.
  std::optional<SectionEntry> read_entry(const std::string& key, const SectionFact& fact, const Value& value,
                                         const std::string& path) {
    const Value* type = value.find("type");
    const bool named = type && type->is_string();
    const std::optional<SectionForm> form = named ? installed_.form_of(key, type->as_string()) : fact.form;
    const KindRule* const rule = rule_of(fact.kind);
    return read_section_entry(value, form.value_or(fact.form), path, problems_, rule && !rule->outside_of.empty());
  }

  const KindRule* rule_of(const std::string& kind) const {
    for (const KindRule& rule : kinds_)
      if (rule.kind == kind) return &rule;
    return nullptr;
  }

  void unknown_key(const std::string& key, const Value& value, const std::vector<Selection>& selections) {
    const std::string told = shown(key) + " is not a setting or a section";
    if (are_enough(problems_)) return problems_.add(value.key_where, told);
    const std::string home = home_of_ ? home_of_(key, selections) : "";
    if (!home.empty()) return problems_.add(value.key_where, concat(told, "\n   it is an option of ", home));
    std::vector<std::string> names;
    for (const OptionField& field : run_settings_table().fields()) names.push_back(field.name);
    for (const auto& [name, fact] : known_sections().sections) names.push_back(name);
    for (const auto& [name, fact] : known_sections().keys)
      if (fact.verdict == KeyFact::none) names.push_back(name);
    for (const KindRule& rule : kinds_) names.insert(names.end(), {rule.kind, rule.section});
    for (const KnownPlugin& p : plugins_) {
      names.push_back(p.section);
      names.insert(names.end(), p.form.aliases.begin(), p.form.aliases.end());
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    std::erase(names, "");
    const bool near = !nearest(key, names).empty();
    problems_.add(value.key_where,
                  concat(told, near || !value.is_object() ? "" : kMissingFolder, suggestion(key, names)));
  }

  // -- sections

  void read_section(const std::string& key, const SectionFact& fact, const Value& value) {
    const KindRule* const rule = rule_of(fact.kind);
    if (!rule) return refuse_kind(key, fact, value);
    if (!value.is_array()) return read_one(key, fact, value, key);
    const auto is_null = [](const Value& one) { return one.is_null(); };
    // A list without a word in it is refused there, too: it would leave everything as it is, in silence.
    if (rule->count != KindRule::any_number || std::all_of(value.items().begin(), value.items().end(), is_null))
      return read_preferences(key, fact, value);
    for (size_t i = 0; i < value.items().size(); ++i) read_one(key, fact, value.items()[i], concat(key, "[", i, "]"));
  }

  void refuse_kind(const std::string& key, const SectionFact& fact, const Value& value) {
    if (is_switched_off(value, fact.form.off_unless_enabled)) return;
    problems_.add(value.key_where, concat(key, ": not in this version"), ErrorCode::plugin);
  }

  void read_one(const std::string& key, const SectionFact& fact, const Value& value, const std::string& path) {
    const auto entry = read_entry(key, fact, value, path);
    if (!entry) asked_[fact.kind] |= !value.is_null();
    if (!entry || refuse_bare_true(key, fact, value) || means_default(key, fact, value)) return;
    if (entry->enabled && means_none(*entry, fact.kind)) return void(off_[fact.kind] = true);
    Problems unheard;  // what is switched off may be anything
    const KnownPlugin* plugin = installed_.find(key, fact, *entry, entry->enabled ? problems_ : unheard);
    // `"monitors": false` switches the kind off; {"stage": 0} of a strategy's own section only that strategy.
    const bool whole_kind = entry->type.empty() || !is_any_number(fact.kind);
    if (!entry->enabled && !fact.needs_claim && whole_kind) off_[fact.kind] = true;
    if (!plugin) return void(asked_[fact.kind] |= entry->enabled);
    Selection selection = selection_of(*plugin, *entry);
    selection.outside_of = read_place(*entry, plugin->kind, kinds_, problems_);
    chosen_[plugin->kind].push_back({key, std::move(selection)});
  }

  // The first installed one is taken; the ones after it are kept in case it cannot be created.
  void read_preferences(const std::string& key, const SectionFact& fact, const Value& list) {
    std::vector<Selection> found;
    Problems misses;
    const size_t before = problems_.list().size();
    for (size_t i = 0; i < list.items().size(); ++i) {
      const auto entry = read_entry(key, fact, list.items()[i], concat(key, "[", i, "]"));
      if (!entry || !entry->enabled) continue;
      const KnownPlugin* plugin = installed_.find(key, fact, *entry, misses);
      if (plugin) found.push_back(selection_of(*plugin, *entry));
    }
    asked_[fact.kind] = true;
    const bool all_were_read = problems_.list().size() == before;  // what is no section is told already
    if (found.empty() && misses.empty() && all_were_read)
      problems_.add(list.where, concat(key, ": the list names nothing\n   say what it is to hold, or leave the key out",
                                       is_any_number(fact.kind) ? "; false is for none" : ""));
    for (const Problem& p : misses.list()) {
      // One that this device cannot use is passed over. A name that nobody has is a mistake wherever it stands.
      if (found.empty() || p.code == ErrorCode::plugin)
        problems_.add(p.where, p.message, p.code);
      else
        problems_.note(p.where, p.message);
    }
    if (found.empty()) return;
    Selection first = found.front();
    first.fallbacks.assign(found.begin() + 1, found.end());
    chosen_[fact.kind].push_back({key, std::move(first)});
  }

  static Selection selection_of(const KnownPlugin& plugin, const SectionEntry& entry) {
    return {plugin.kind, plugin.name, entry.params, entry.where, entry.params_path, entry.enabled, {}};
  }

  // `true` for a kind, where no plugin claims that very section: what is chosen when nothing is said.
  bool means_default(const std::string& key, const SectionFact& fact, const Value& value) const {
    if (!value.is_bool() || !value.as_bool() || fact.needs_claim || fact.form.on.is_object()) return false;
    return !installed_.form_of(key) && !installed_.defaults(fact.kind).empty();
  }

  // Where there always is one, `true` would say nothing: "pipeline": true would be a run without a pipeline.
  bool refuse_bare_true(const std::string& key, const SectionFact& fact, const Value& value) {
    if (!means_default(key, fact, value) || rule_of(fact.kind)->count != KindRule::exactly_one) return false;
    problems_.add(value.where, concat(key, ": true does not say which ", fact.kind,
                                      "\n   name one: ", PluginIndex::names(installed_.of_device(fact.kind))));
    return true;
  }

  bool means_none(const SectionEntry& entry, const std::string& kind) const {
    return lower_case(entry.type) == "none" && installed_.with_type(kind, "none").empty();
  }

  // -- counting and defaults

  bool is_any_number(const std::string& kind) const {
    const KindRule* const rule = rule_of(kind);
    return rule && rule->count == KindRule::any_number;
  }

  void finish_kind(const KindRule& rule, std::vector<Selection>& all) {
    std::vector<Chosen>& chosen = chosen_[rule.kind];
    if (rule.count == KindRule::any_number)
      add_missing_defaults(rule, chosen);
    else
      fill_one_place(rule, chosen);
    for (Chosen& c : chosen) all.push_back(std::move(c.selection));
  }

  static Selection default_selection(const KindRule& rule, const KnownPlugin& plugin) {
    return {rule.kind, plugin.name, Value::object(), {}, rule.key() + ".params", true, {}};
  }

  void add_missing_defaults(const KindRule& rule, std::vector<Chosen>& chosen) {
    if (off_[rule.kind]) return;
    for (const KnownPlugin* p : installed_.defaults(rule.kind)) {
      const auto same = [&](const Chosen& c) { return c.selection.name == p->name; };
      if (std::none_of(chosen.begin(), chosen.end(), same)) chosen.push_back({"", default_selection(rule, *p)});
    }
  }

  void fill_one_place(const KindRule& rule, std::vector<Chosen>& chosen) {
    const Chosen* first = nullptr;
    for (const Chosen& c : chosen) {
      if (!c.selection.enabled) continue;
      if (first) two_sections(rule.kind, *first, c);
      first = first ? first : &c;
    }
    if (first || asked_[rule.kind] || (off_[rule.kind] && rule.count == KindRule::at_most_one)) return;
    add_default(rule, chosen);
  }

  void add_default(const KindRule& rule, std::vector<Chosen>& chosen) {
    const PluginIndex::List list = installed_.defaults(rule.kind);
    if (list.size() == 1) {
      chosen.push_back({"", default_selection(rule, *list.front())});
    } else if (list.size() > 1) {
      problems_.add(config_.where, concat("more than one installed ", rule.kind, " plugin says it is the default: ",
                                          PluginIndex::names(list), "\n   say which: \"", rule.key(),
                                          "\": {\"type\": \"", list.front()->name, "\"}"));
    } else if (rule.count == KindRule::exactly_one) {
      const PluginIndex::List any = installed_.of_device(rule.kind);
      problems_.add(config_.where,
                    concat("no ", rule.kind, " is given: add \"", rule.key(),
                           "\": {\"type\": ..., \"params\": {...}}\n   installed: ", PluginIndex::names(any)),
                    any.empty() ? ErrorCode::plugin : ErrorCode::config);
    }
  }

  void two_sections(const std::string& kind, const Chosen& first, const Chosen& second) {
    problems_.add(second.selection.where,
                  concat(second.section, " and ", first.section, " (", first.selection.where.text(),
                         ") both choose the ", kind, " (", second.selection.name, " and ", first.selection.name,
                         "), and there is one place\n   keep one of them"));
  }

  const std::vector<KindRule>& kinds_;
  const std::vector<KnownPlugin>& plugins_;
  const PluginIndex installed_;
  Problems& problems_;
  const OptionHome& home_of_;
  const Value config_;
  std::vector<std::pair<std::string, const Value*>> unknown_;
  std::map<std::string, std::vector<Chosen>> chosen_;
  std::map<std::string, bool> asked_;  // the file asks for one, even if it was not found
  std::map<std::string, bool> off_;
};

}  // namespace

std::vector<Selection> select_plugins(const Value& config, const std::vector<KindRule>& kinds,
                                      const std::vector<KnownPlugin>& plugins, const std::string& device,
                                      Problems& problems, const OptionHome& home_of) {
  return Selector(config, kinds, plugins, device, problems, home_of).select();
}

}  // namespace drivetrain
