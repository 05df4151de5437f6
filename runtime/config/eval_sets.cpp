#include "config/eval_sets.h"

#include <algorithm>
#include <cctype>

#include "base/printable.h"
#include "base/value_error.h"
#include "config/section_entry.h"

namespace drivetrain {
namespace {

constexpr const char* kKind = "evaluation";

// A part of the names of figures, "eval/NAME/loss".
bool is_set_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

void read_interval(const Value& interval, const std::string& path, Selection& set, Problems& problems) {
  try {
    if (!interval.is_null()) set.interval = interval.as_int();
    if (set.interval.value_or(0) >= 0) return;
  } catch (const Error&) {
  }
  problems.add(interval.where,
               concat(path, ".interval: expected a number of steps, 0 or more, found ", short_json(interval)));
}

void read_set(const std::string& name, Value value, Problems& problems, std::vector<Selection>& sets) {
  const std::string path = "eval.sets." + shown(name);
  if (!is_set_name(name))
    return problems.add(value.key_where, concat(path,
                                                ": a set's name is part of the names of its figures"
                                                "\n   write it with letters, digits, '_', '-' and '.'"));
  Selection set;
  set.kind = kKind, set.set = name;
  if (const Value* interval = value.find("interval")) {
    const bool typed = value.find("type") || value.find("params");
    if (typed) read_interval(*interval, path, set, problems), value.erase("interval");
  }
  const auto entry = read_section_entry(value, {}, path, problems);
  if (!entry) return;
  if (entry->type.empty())
    return problems.add(entry->where, concat(path, " does not say how it is evaluated\n   write {\"type\": NAME, ",
                                             "\"params\": {...}}; `drivetrain inspect ", kKind, "` lists the names"));
  set.name = entry->type, set.params = entry->params, set.where = entry->where;
  set.path = entry->params_path, set.enabled = entry->enabled;
  sets.push_back(std::move(set));
}

}  // namespace

std::vector<Selection> read_eval_sets(const Value& config, Problems& problems) {
  std::vector<Selection> list;
  const Value* const section = config.find("eval");
  const Value* const sets = section ? section->find("sets") : nullptr;
  if (!sets || sets->is_null()) return list;
  if (!sets->is_object()) {
    problems.add(sets->where, concat("eval.sets: expected an object of named sets, found ", describe(*sets)));
    return list;
  }
  for (const Value::Member& m : sets->members())
    if (!m.key.starts_with('_') && !m.key.starts_with('$')) read_set(m.key, m.value, problems, list);
  const Value* const enabled = section->find("enabled");
  if (enabled && enabled->is_bool() && !enabled->as_bool())
    for (Selection& set : list) set.enabled = false;
  return list;
}

Value eval_set_value(const Selection& set, Value options) {
  Value value = Value::Object{{"type", set.name}, {"params", std::move(options)}};
  if (set.interval) value.set("interval", *set.interval);
  if (!set.enabled) value.set("enabled", false);
  return value;
}

}  // namespace drivetrain
