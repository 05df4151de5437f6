// Names, further names, claims and defaults of the installed plugins. Every refusal lists what is installed.
#include "config/plugin_index.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"

namespace drivetrain {
namespace {

bool has_type_name(const KnownPlugin& plugin, const std::string& type) {
  const auto same = [&](const std::string& name) { return lower_case(name) == lower_case(type); };
  return same(plugin.name) || std::any_of(plugin.type_names.begin(), plugin.type_names.end(), same);
}

}  // namespace

bool KnownPlugin::claims(const std::string& name) const {
  return !section.empty() &&
         (section == name || std::find(form.aliases.begin(), form.aliases.end(), name) != form.aliases.end());
}

PluginIndex::List PluginIndex::of_kind(const std::string& kind) const {
  return matching([&](const KnownPlugin& p) { return p.kind == kind; });
}

PluginIndex::List PluginIndex::of_device(const std::string& kind) const {
  return matching([&](const KnownPlugin& p) { return p.kind == kind && fits_device(p); });
}

PluginIndex::List PluginIndex::with_type(const std::string& kind, const std::string& type) const {
  const List exact = matching([&](const KnownPlugin& p) { return p.kind == kind && p.name == type; });
  if (!exact.empty()) return exact;
  return matching([&](const KnownPlugin& p) { return p.kind == kind && has_type_name(p, type); });
}

PluginIndex::List PluginIndex::defaults(const std::string& kind) const {
  return matching([&](const KnownPlugin& p) { return p.kind == kind && p.is_default && fits_device(p); });
}

std::optional<SectionForm> PluginIndex::form_of(const std::string& section, const std::string& type) const {
  const List all = matching([&](const KnownPlugin& p) { return p.claims(section); });
  if (all.empty()) return {};
  List named = all, fitting = all;
  std::erase_if(named, [&](const KnownPlugin* p) { return type.empty() || !has_type_name(*p, type); });
  std::erase_if(fitting, [&](const KnownPlugin* p) { return !fits_device(*p); });
  SectionForm form;
  for (const KnownPlugin* p : !named.empty() ? named : !fitting.empty() ? fitting : all)
    merge_section_form(form, p->form);
  return form;
}

const KnownPlugin* PluginIndex::find(const std::string& section, const SectionFact& fact, const SectionEntry& entry,
                                     Problems& problems) const {
  if (!entry.type.empty()) return find_by_type(fact.kind, entry, problems);
  List candidates = matching([&](const KnownPlugin& p) { return p.claims(section) && fits_device(p); });
  if (candidates.empty() && !fact.needs_claim) candidates = defaults(fact.kind);
  if (candidates.size() == 1) return candidates.front();
  no_single(candidates, fact, entry, problems);
  return nullptr;
}

void PluginIndex::no_single(const List& candidates, const SectionFact& fact, const SectionEntry& entry,
                            Problems& problems) const {
  const List installed = of_kind(fact.kind);
  if (candidates.size() > 1) {
    std::vector<std::string> names;
    for (const KnownPlugin* p : candidates) names.push_back(p->kind + "/" + p->name);
    problems.add(entry.where, concat(entry.path, " could mean ", join(names, " or "), "\n   say which: {\"type\": \"",
                                     candidates.front()->name, "\", \"params\": {...}}"));
  } else if (fact.needs_claim || installed.empty()) {
    problems.add(entry.where,
                 concat(entry.path, ": no installed plugin reads this section; it is one for the kind ", fact.kind,
                        "\n   installed: ", names(installed)),
                 ErrorCode::plugin);
  } else {
    problems.add(entry.where, concat(entry.path, " needs a \"type\": no ", fact.kind,
                                     " plugin is the default\n   installed: ", names(installed)));
  }
}

const KnownPlugin* PluginIndex::find_by_type(const std::string& kind, const SectionEntry& entry,
                                             Problems& problems) const {
  const List named = with_type(kind, entry.type);
  List fitting = named;
  std::erase_if(fitting, [&](const KnownPlugin* p) { return !fits_device(*p); });
  if (fitting.size() == 1) return fitting.front();
  if (named.empty()) {
    not_installed(kind, entry, problems);
  } else if (fitting.empty()) {
    problems.add(entry.type_where, concat(entry.path, ": ", kind, "/", named.front()->name, " works on device \"",
                                          named.front()->device, "\", but this run has \"", device_, "\""));
  } else {
    problems.add(entry.type_where, concat(entry.path, ": more than one plugin answers to type \"", entry.type,
                                          "\"\n   use its own name: ", names(fitting)));
  }
  return nullptr;
}

void PluginIndex::not_installed(const std::string& kind, const SectionEntry& entry, Problems& problems) const {
  const List installed = of_kind(kind);
  std::vector<std::string> words;
  for (const KnownPlugin* p : installed) {
    words.push_back(p->name);
    words.insert(words.end(), p->type_names.begin(), p->type_names.end());
  }
  words.insert(words.end(), {"none", "true", "false"});  // what else may stand there
  const auto& types = known_sections().types;
  const auto of_kind_known = types.find(kind);
  if (of_kind_known != types.end()) {
    const auto told = of_kind_known->second.find(lower_case(entry.type));
    if (told != of_kind_known->second.end())
      return problems.add(entry.type_where,
                          concat(entry.path, ": no plugin answers to type \"", entry.type, "\": ", told->second,
                                 "\n   installed: ", names(installed)),
                          ErrorCode::plugin);
  }
  const std::string near = nearest(entry.type, words);
  problems.add(entry.type_where,
               concat(entry.path, ": no plugin ", kind, "/", shown(lower_case(entry.type)), " is installed\n   ",
                      near.empty() ? "" : "did you mean \"" + near + "\"?   ", "installed: ", names(installed)),
               ErrorCode::plugin);
}

std::string PluginIndex::names(const List& plugins) {
  std::vector<std::string> names;
  for (const KnownPlugin* p : plugins)
    names.push_back(p->name + (p->type_names.empty() ? "" : " (also " + join(p->type_names) + ")"));
  return names.empty() ? "none" : join(names);
}

}  // namespace drivetrain
