// The forms a section may have. {type, params} and bare options are never mixed: it would be unclear who reads the
// rest.
#include "config/section_entry.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "base/value_error.h"
#include "config/known_keys.h"
#include "config/section_words.h"

namespace drivetrain {
namespace {

Value empty_params(const Position& where) {
  Value params = Value::object();
  params.where = where;
  return params;
}

constexpr size_t kNamedKeys = 20;

bool is_note_key(const std::string& key) { return key.starts_with('_') || key.starts_with('$'); }

// "true" or "false" for a word that switches; "" for others.
std::string exact_switch(const std::string& text) {
  const std::string word = lower_case(text);
  if (word == "true" || word == "on" || word == "yes") return "true";
  return word == "false" || word == "off" || word == "no" ? "false" : "";
}

// The option that says "absent", as the section has it; null if none does.
const Value::Member* find_off_value(const Value& section, const SectionForm& form) {
  if (!form.off.is_object()) return nullptr;
  for (const Value::Member& m : section.members()) {
    const Value* off = form.off.find(m.key);
    if (off && (m.value.is_number() && off->is_number() ? m.value.as_double() == off->as_double() : m.value == *off))
      return &m;
  }
  return nullptr;
}

// What stands beside the value that switches a section off was perhaps meant to count.
void name_idle_options(const SectionEntry& entry, const Value::Member& off, const SectionForm& form,
                       Problems& problems) {
  std::vector<std::string> idle;
  for (const Value::Member& m : entry.params.members())
    if (!form.off.find(m.key) && !m.value.is_null() && !is_note_key(m.key))
      idle.push_back(concat(entry.params_path, ".", shown(m.key)));
  if (idle.empty()) return;
  if (idle.size() > kNamedKeys) idle.resize(kNamedKeys), idle.push_back("...");
  problems.note(off.value.key_where, concat(join(idle), idle.size() == 1 ? " has" : " have", " no effect at ", off.key,
                                            " ", off.value.to_json(), "; it switches the section off"));
}

// DeepSpeed's few keys beside `type` and `params`.
bool is_known_beside(const Value::Member& member, const std::string& path, Problems& problems) {
  const auto section = known_sections().beside.find(path);
  if (section == known_sections().beside.end()) return false;
  const auto fact = section->second.find(member.key);
  if (fact == section->second.end()) return false;
  check_known_key(concat(path, ".", member.key), fact->second, member.value, Value(), problems);
  return true;
}

void drop_meaningless(SectionEntry& entry) {
  const Value* const section = known_sections().meaningless.find(entry.path);
  if (!section) return;
  for (const Value::Member& m : section->members())
    if (const Value* given = entry.params.find(m.key); given && *given == m.value) entry.params.erase(m.key);
}

void check_mixture(const Value& section, const std::string& path, bool may_move, Problems& problems) {
  std::vector<std::string> words = {"type", "params", "enabled"};
  if (may_move) words.push_back(kOutsideOf);
  std::vector<std::string> extra;
  std::string meant;
  const Value* first = nullptr;
  for (const Value::Member& m : section.members()) {
    if (std::find(words.begin(), words.end(), m.key) != words.end() || is_note_key(m.key)) continue;
    if (is_known_beside(m, path, problems)) continue;
    if (extra.size() < kNamedKeys) extra.push_back("\"" + shown(m.key) + "\"");
    if (!first) first = &m.value;
    // `parms` beside `type` was meant as one of the section's own words.
    const std::string word = nearest(m.key, words);
    if (meant.empty() && !word.empty() && !section.find(word))
      meant = concat("; did you mean \"", word, "\" by \"", shown(m.key), "\"?");
  }
  if (!first) return;
  problems.add(first->key_where,
               concat(path, " has ", section.find("type") ? "\"type\"" : "\"params\"", " beside options of its own (",
                      join(extra), ")\n   move them into \"params\": {...}", meant));
}

void read_typed(const Value& section, SectionEntry& entry, bool may_move, Problems& problems) {
  check_mixture(section, entry.path, may_move, problems);
  if (const Value* type = section.find("type")) {
    entry.type_where = type->where;
    if (type->is_string() && !type->as_string().empty())
      entry.type = type->as_string();
    else
      problems.add(type->where, concat(entry.path, ".type: expected the name of a type, found ", describe(*type)));
  }
  entry.params_path = entry.path + ".params";
  const Value* params = section.find("params");
  if (!params || params->is_null()) return;
  if (params->is_object())
    entry.params = *params;
  else
    problems.add(params->where,
                 concat(entry.params_path, ": expected an object of options, found ", describe(*params)));
}

void read_enabled(const Value& section, SectionEntry& entry, Problems& problems) {
  const Value* enabled = section.find("enabled");
  if (!enabled) return;
  if (enabled->is_bool())
    entry.enabled = enabled->as_bool();
  else
    problems.add(enabled->where,
                 concat(entry.path, ".enabled: expected boolean, found ", describe(*enabled), boolean_hint(*enabled)));
}

// `path` of an entry of a list is "attention[0]", which is no key that could be written.
std::string what_to_write(const std::string& path, const SectionForm& form) {
  constexpr const char* kTyped = "{\"type\": NAME, \"params\": {...}}";
  const std::string key = path.substr(0, path.find('['));
  if (key != path)
    return concat("\n   write \"NAME\" or ", kTyped, " in this place of the list, or options without a list: \"", key,
                  "\": {...}");
  return concat("\n   write \"", key, "\": ", kTyped,
                form.number.empty() ? std::string() : concat(", or a number, its \"", form.number, "\""));
}

}  // namespace

std::optional<SectionEntry> read_section_entry(const Value& value, const SectionForm& form, const std::string& path,
                                               Problems& problems, bool may_move) {
  SectionEntry entry{path, value.where, "", value.where, empty_params(value.where), path, true};
  if (value.is_null()) return {};
  if (value.is_bool() && !value.as_bool()) {
    entry.enabled = false;
  } else if (value.is_bool() && form.on.is_object()) {
    entry.params = form.on;
    entry.params.where = value.where;
    for (Value::Member& m : entry.params.members()) m.value.where = m.value.key_where = value.where;
    problems.note(value.where, concat(path, ": true means ", form.on.to_json()));
  } else if (value.is_bool() && form.number.empty()) {
    // `true` beside a `false` that is known: the section with default options, as it stands in `entry`.
  } else if (value.is_string() && !exact_switch(value.as_string()).empty()) {
    problems.add(value.where, concat(path, ": \"", value.as_string(), "\" is read as the name of a type\n   write ",
                                     exact_switch(value.as_string()), ", without quotation marks"));
    return {};
  } else if (value.is_number() && !form.number.empty()) {
    entry.params.set(form.number, value);
    if (find_off_value(entry.params, form)) entry.enabled = false;
  } else if (value.is_string() && !value.as_string().empty()) {
    entry.type = value.as_string();
    entry.params_path = path + ".params";
  } else if (value.is_object()) {
    const bool typed = value.find("type") || value.find("params");
    if (typed) {
      read_typed(value, entry, may_move, problems);
    } else {
      entry.params = value;
      entry.params.erase("enabled");
      if (may_move) entry.params.erase(kOutsideOf);
      drop_meaningless(entry);
      entry.enabled = !is_switched_off(value, form.off_unless_enabled);
      if (!entry.enabled && !value.find("enabled") && !value.members().empty())
        problems.note(value.key_where, concat(path, " is off: it does not say \"enabled\": true"));
    }
    read_enabled(value, entry, problems);
    if (const Value* const place = value.find(kOutsideOf); place && may_move) entry.outside_of = *place;
    const Value::Member* off = find_off_value(entry.params, form);
    if (off && entry.enabled) name_idle_options(entry, *off, form, problems);
    if (off) entry.enabled = false;
  } else {
    problems.add(value.where, concat(path, ": expected a type name or an object, found ", describe(value),
                                     what_to_write(path, form)));
    return {};
  }
  return entry;
}

}  // namespace drivetrain
