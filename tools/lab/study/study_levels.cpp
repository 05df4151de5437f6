#include "study/study_levels.h"

#include <algorithm>
#include <set>

#include "base/printable.h"
#include "base/suggest.h"

namespace drivetrain::study {
namespace {

constexpr const char* kAbsent = "absent";

bool is_name(const std::string& text) {
  return !text.empty() && text.find_first_of("=,\n\t/\\\"' ") == std::string::npos && text[0] != '.';
}

// "absent" removes the key; the text itself cannot be a level.
Change change_of(const std::string& key, const Value& value) {
  if (value.is_string() && value.as_string() == kAbsent) return {key, std::nullopt};
  return {key, value};
}

void check_launch_key(const Change& change, const Value& at) {
  if (change.key == "world_size") {
    if (!change.value || !change.value->is_int() || change.value->as_int() < 1)
      throw wrong(at, concat("\"world_size\" is a whole number of ranks from 1, found ",
                             change.value ? shown_value(*change.value) : std::string("\"absent\"")));
  } else if (change.key == "hosts") {
    if (change.value && !change.value->is_string())
      throw wrong(at, concat("\"hosts\" is a hostfile or \"absent\", found ", shown_value(*change.value)));
  } else if (change.key == "environment" || change.key == "environment.") {
    throw wrong(at, "name the variable: \"environment.OMP_NUM_THREADS\"");
  } else if (change.key == "output_dir") {
    throw wrong(at, "every run of a study has a folder of its own: \"output_dir\" of the study says where they lie");
  }
}

std::string name_of(const Value& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_object())
    if (const Value* const type = value.find("type"); type && type->is_string() && value.members().size() == 1)
      return type->as_string();
  return value.to_json();
}

// "levels" as a list of values of one key, or as an object: name -> value of the key, or name -> changes of a group.
std::vector<Level> levels_of(const Value& levels, const std::string& key, const std::string& factor) {
  std::vector<Level> list;
  const auto add = [&](const std::string& name, const Value& value) {
    Level level{name, key.empty() ? changes_of(value, factor) : std::vector<Change>{change_of(key, value)}};
    for (const Change& change : level.changes) check_launch_key(change, value);
    for (const Level& other : list)
      if (other.name == name)
        throw wrong(value, concat("factor \"", factor, "\" has two levels \"", shown(name), "\""));
    list.push_back(std::move(level));
  };
  if (levels.is_array()) {
    if (key.empty())
      throw wrong(levels, concat("factor \"", factor, "\" has no \"key\": then its levels are an object of groups, ",
                                 "{\"small\": {\"model.params.hidden_size\": 64}}"));
    for (const Value& value : levels.items()) add(name_of(value), value);
  } else if (levels.is_object()) {
    for (const Value::Member& m : levels.members()) add(m.key, m.value);
  } else {
    throw wrong(levels,
                concat("\"levels\" of factor \"", factor, "\" is a list or an object, found ", shown_value(levels)));
  }
  if (list.size() < 2)
    throw wrong(levels, concat("factor \"", factor, "\" has ", list.size(), list.size() == 1 ? " level" : " levels",
                               ": at least two are compared"));
  return list;
}

Factor factor_of(const std::string& name, const Value& value) {
  if (!is_name(name))
    throw wrong_key(value, concat("\"", shown(name), "\" cannot be a factor's name: it stands in files' names"));
  Factor factor{name, {}};
  if (value.is_array()) {  // "zero_optimization.stage": [0, 1]
    factor.levels = levels_of(value, name, name);
    return factor;
  }
  const Value* const levels = value.find("levels");
  if (!value.is_object() || !levels)
    throw wrong(value, concat("factor \"", name, "\" is {\"key\": ..., \"levels\": [...]} or a list of levels, found ",
                              shown_value(value)));
  for (const Value::Member& m : value.members())
    if (m.key != "key" && m.key != "levels" && m.key.find_first_of("_$") != 0)
      throw wrong_key(m.value,
                      concat("a factor has no key \"", shown(m.key), "\"", suggestion(m.key, {"key", "levels"})));
  const Value* const key = value.find("key");
  if (key && (!key->is_string() || key->as_string().empty()))
    throw wrong(*key, concat("\"key\" of factor \"", name, "\" is a path such as \"zero_optimization.stage\", found ",
                             shown_value(*key)));
  factor.levels = levels_of(*levels, key ? key->as_string() : "", name);
  return factor;
}

std::vector<std::string> names_of(const std::vector<Factor>& factors) {
  std::vector<std::string> names;
  for (const Factor& factor : factors) names.push_back(factor.name);
  return names;
}

size_t factor_called(const std::string& name, const Value& at, const std::vector<Factor>& factors) {
  for (size_t i = 0; i < factors.size(); ++i)
    if (factors[i].name == name) return i;
  throw wrong_key(at, concat("there is no factor \"", shown(name), "\"", suggestion(name, names_of(factors))));
}

int level_called(const Value& value, const Factor& factor) {
  std::vector<std::string> names;
  for (size_t i = 0; i < factor.levels.size(); ++i) {
    names.push_back(factor.levels[i].name);
    if (names.back() == name_of(value)) return static_cast<int>(i);
  }
  throw wrong(value, concat("factor \"", factor.name, "\" has no level ", shown_value(value),
                            suggestion(name_of(value), names)));
}

std::vector<Constraint::Condition> conditions_of(const Value& object, const std::vector<Factor>& factors) {
  if (!object.is_object() || object.members().empty())
    throw wrong(object, concat("a condition is {FACTOR: LEVEL or [LEVEL, ...]}, found ", shown_value(object)));
  std::vector<Constraint::Condition> list;
  for (const Value::Member& m : object.members()) {
    Constraint::Condition condition{factor_called(m.key, m.value, factors), {}};
    if (!m.value.is_array())
      condition.levels = {level_called(m.value, factors[condition.factor])};
    else
      for (const Value& level : m.value.items())
        condition.levels.push_back(level_called(level, factors[condition.factor]));
    list.push_back(std::move(condition));
  }
  return list;
}

}  // namespace

Error wrong(const Value& at, const std::string& message) {
  return fail(ErrorCode::config, at.where.text(), at.where.file.empty() ? "" : "  ", message);
}

Error wrong_key(const Value& at, const std::string& message) {
  return fail(ErrorCode::config, at.key_where.text(), at.key_where.file.empty() ? "" : "  ", message);
}

std::string shown_value(const Value& value) { return shown(value.to_json()); }

std::vector<Change> changes_of(const Value& object, const std::string& where) {
  if (!object.is_object())
    throw wrong(object, concat("\"", where, "\" takes {KEY: VALUE}, found ", shown_value(object)));
  std::vector<Change> list;
  for (const Value::Member& m : object.members()) {
    if (m.key.find_first_of("_$") == 0) continue;
    list.push_back(change_of(m.key, m.value));
    check_launch_key(list.back(), m.value);
  }
  return list;
}

std::vector<std::string> environment_of(const Value& object) {
  if (!object.is_object()) throw wrong(object, concat("\"environment\" is {NAME: VALUE}, found ", shown_value(object)));
  std::vector<std::string> list;
  for (const Value::Member& m : object.members())
    list.push_back(m.key + "=" + (m.value.is_string() ? m.value.as_string() : m.value.to_json()));
  return list;
}

std::vector<Factor> factors_of(const Value& factors) {
  if (!factors.is_object()) throw wrong(factors, concat("\"factors\" is {NAME: FACTOR}, found ", shown_value(factors)));
  std::vector<Factor> list;
  for (const Value::Member& m : factors.members())
    if (m.key.find_first_of("_$") != 0) list.push_back(factor_of(m.key, m.value));
  return list;
}

std::vector<int> reference_of(const Value& reference, const std::vector<Factor>& factors) {
  if (!reference.is_object())
    throw wrong(reference, concat("\"reference\" is {FACTOR: LEVEL}, found ", shown_value(reference)));
  std::vector<int> levels(factors.size(), 0);
  for (const Value::Member& m : reference.members()) {
    const size_t factor = factor_called(m.key, m.value, factors);
    levels[factor] = level_called(m.value, factors[factor]);
  }
  return levels;
}

std::vector<Row> rows_of(const Value& rows, const std::vector<Factor>& factors) {
  if (!rows.is_array()) throw wrong(rows, concat("\"rows\" is a list of objects, found ", shown_value(rows)));
  std::vector<Row> list;
  for (const Value& value : rows.items()) {
    if (!value.is_object())
      throw wrong(value, concat("a row is {FACTOR: LEVEL, \"set\": {...}}, found ", shown_value(value)));
    Row row{"", std::vector<int>(factors.size(), -1), {}};
    for (const Value::Member& m : value.members()) {
      if (m.key == "set")
        row.changes = changes_of(m.value, "set");
      else if (m.key == "id")
        row.id = m.value.as_string();
      else if (m.key.find_first_of("_$") != 0) {
        const size_t factor = factor_called(m.key, m.value, factors);
        row.levels[factor] = level_called(m.value, factors[factor]);
      }
    }
    if (row.id.find_first_of("/\n\t") != std::string::npos || row.id.starts_with("."))
      throw wrong(value, concat("\"", shown(row.id), "\" cannot be a row's id: it is the name of a folder"));
    for (const Row& other : list)
      if (!row.id.empty() && other.id == row.id)
        throw wrong(value, concat("two rows have the id \"", shown(row.id), "\": each row needs its own"));
    list.push_back(std::move(row));
  }
  return list;
}

std::vector<Constraint> constraints_of(const Value& list, const std::vector<Factor>& factors) {
  if (!list.is_array()) throw wrong(list, concat("\"constraints\" is a list, found ", shown_value(list)));
  std::vector<Constraint> constraints;
  for (const Value& value : list.items()) {
    const Value *const excluded = value.find("not"), *const condition = value.find("if"),
                       *const then = value.find("then");
    if (excluded && !condition && !then)
      constraints.push_back({conditions_of(*excluded, factors), {}});
    else if (condition && then && !excluded)
      constraints.push_back({conditions_of(*condition, factors), conditions_of(*then, factors)});
    else
      throw wrong(value,
                  concat("a constraint is {\"not\": {FACTOR: LEVEL}} or {\"if\": {...}, \"then\": {...}}, found ",
                         shown_value(value)));
  }
  return constraints;
}

}  // namespace drivetrain::study
