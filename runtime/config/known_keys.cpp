#include "config/known_keys.h"

#include <algorithm>

#include "base/printable.h"
#include "base/suggest.h"
#include "base/value_error.h"
#include "config/auto_switches.h"

namespace drivetrain {
namespace {

bool holds(const Value::Array& values, const Value& value) {
  return std::any_of(values.begin(), values.end(), [&](const Value& one) {
    return one.is_number() && value.is_number() ? one.as_double() == value.as_double() : one == value;
  });
}

// The value at a path "a.b" of the file, or null.
const Value* at_path(const Value& config, const std::string& path) {
  const size_t dot = path.find('.');
  const Value* const found = config.find(path.substr(0, dot));
  return !found || dot == std::string::npos ? found : at_path(*found, path.substr(dot + 1));
}

bool applies(const RefusedIf& rule, const Value& config) {
  const Value* const given = at_path(config, rule.key);
  if (!given || given->is_null()) return false;
  if (!rule.values.empty() && !holds(rule.values, *given)) return false;
  const Value* const way_out = rule.unless.empty() ? nullptr : at_path(config, rule.unless);
  return !(way_out && *way_out == rule.is);
}

// Says nothing of values that ask for nothing.
bool is_off(const KeyFact& fact, const Value& value) {
  if (holds(fact.accept, value)) return true;
  if (!fact.accept.empty() && !value.find("enabled")) return value.is_null();
  return is_switched_off(value, fact.off_unless_enabled);
}

bool is_choice(const KeyFact& fact, const Value& value) {
  if (fact.choices.empty()) return true;
  return value.is_string() && std::any_of(fact.choices.begin(), fact.choices.end(), [&](const std::string& choice) {
           return lower_case(choice) == lower_case(value.as_string());
         });
}

void check_members(const std::string& path, const KeyFact& fact, const Value& value, const Value& config,
                   Problems& problems) {
  std::vector<std::string> names;
  for (const auto& [name, own] : *fact.keys) names.push_back(name);
  for (const Value::Member& m : value.members()) {
    if (m.key.starts_with('_') || m.key.starts_with('$')) continue;
    const auto own = fact.keys->find(m.key);
    const std::string below = concat(path, ".", shown(m.key));
    if (own == fact.keys->end())
      problems.add(m.value.key_where, concat(below, " is not a key of ", path, suggestion(m.key, names)));
    else
      check_known_key(below, own->second, m.value, config, problems);
  }
}

}  // namespace

void check_known_key(const std::string& path, const KeyFact& fact, const Value& value, const Value& config,
                     Problems& problems) {
  if (is_auto(value.find("enabled")))
    return problems.resolve(value.find("enabled")->where, path + ".enabled", "false",
                            "\"auto\": off, nothing here switches it on");
  if (is_off(fact, value)) return;
  if (!is_choice(fact, value))
    return problems.add(value.where,
                        concat(path, " is ", short_json(value), ", but it takes ", quoted_choice(fact.choices)));
  for (const RefusedIf& rule : fact.refused_if)
    if (applies(rule, config)) return problems.add(value.key_where, concat(path, ": ", rule.reason));
  if (fact.keys && value.is_object() && fact.verdict != KeyFact::refused)
    check_members(path, fact, value, config, problems);
  if (fact.verdict == KeyFact::ignored)
    problems.note(value.key_where, concat(path, " has no effect here: ", fact.reason));
  if (fact.verdict == KeyFact::refused) problems.add(value.key_where, concat(path, ": ", fact.reason));
}

}  // namespace drivetrain
