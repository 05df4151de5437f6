#include "config/section_form.h"

#include <algorithm>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "base/value_error.h"

namespace drivetrain {
namespace {

bool is_name(const std::string& text) {
  return !text.empty() && text[0] != '_' && text[0] != '$' && one_line(text) == text;
}

Error wrong(const char* key, const char* wanted, const Value& found) {
  return fail(ErrorCode::config, "\"", key, "\" wants ", wanted, ", found ", describe(found));
}

// What a config can write for one option, so that the two can be compared: no object and no list.
Value read_options(const char* key, const Value& value) {
  constexpr const char* kWanted = "an object of options with plain values";
  if (!value.is_object() || value.members().empty()) throw wrong(key, kWanted, value);
  for (const Value::Member& m : value.members())
    if (!is_name(m.key) || m.value.is_object() || m.value.is_array() || m.value.is_null())
      throw fail(ErrorCode::config, "\"", key, "\" wants ", kWanted, ", found \"", shown(m.key), "\" with ",
                 describe(m.value));
  return value;
}

// How strong the claim is on each device.
Value read_ranks(const char* key, const Value& value) {
  constexpr const char* kWanted = "an object of devices, each with a whole number of 1 or more";
  if (!value.is_object() || value.members().empty()) throw wrong(key, kWanted, value);
  for (const Value::Member& m : value.members())
    if (!is_name(m.key) || !m.value.is_int() || m.value.as_int() < 1) throw wrong(key, kWanted, m.value);
  return value;
}

std::string read_name(const char* key, const Value& value) {
  if (!value.is_string() || !is_name(value.as_string())) throw wrong(key, "the name of an option", value);
  return value.as_string();
}

std::vector<std::string> read_aliases(const Value& value) {
  constexpr const char* kWanted = "a list of different names of sections";
  std::vector<std::string> names;
  if (!value.is_array()) throw wrong("aliases", kWanted, value);
  for (const Value& name : value.items()) {
    const bool good = name.is_string() && is_name(name.as_string());
    if (!good || std::find(names.begin(), names.end(), name.as_string()) != names.end())
      throw wrong("aliases", kWanted, name);
    names.push_back(name.as_string());
  }
  return names;
}

}  // namespace

SectionForm read_section_form(const Value& value) {
  if (!value.is_object()) throw fail(ErrorCode::config, "its form wants an object, found ", describe(value));
  SectionForm form;
  for (const Value::Member& m : value.members()) {
    if (m.key == "aliases") {
      form.aliases = read_aliases(m.value);
    } else if (m.key == "number") {
      form.number = read_name("number", m.value);
    } else if (m.key == "on") {
      form.on = read_options("on", m.value);
    } else if (m.key == "off") {
      form.off = read_options("off", m.value);
    } else if (m.key == "off_unless_enabled") {
      if (!m.value.is_bool()) throw wrong("off_unless_enabled", "true or false", m.value);
      form.off_unless_enabled = m.value.as_bool();
    } else if (m.key == "auto") {
      form.automatic = read_ranks("auto", m.value);
    } else {
      throw fail(ErrorCode::config, "there is no form \"", shown(m.key),
                 "\" (forms: aliases, number, on, off, off_unless_enabled, auto)");
    }
  }
  return form;
}

std::vector<std::string> options_of_form(const SectionForm& form) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  if (!form.number.empty()) add(form.number);
  for (const Value* options : {&form.on, &form.off})
    if (options->is_object())
      for (const Value::Member& m : options->members()) add(m.key);
  return names;
}

void merge_section_form(SectionForm& form, const SectionForm& other) {
  form.aliases.insert(form.aliases.end(), other.aliases.begin(), other.aliases.end());
  if (form.number.empty()) form.number = other.number;
  if (form.on.is_null()) form.on = other.on;
  if (form.off.is_null()) form.off = other.off;
  form.off_unless_enabled = form.off_unless_enabled || other.off_unless_enabled;
  if (form.automatic.is_null()) form.automatic = other.automatic;
}

}  // namespace drivetrain
