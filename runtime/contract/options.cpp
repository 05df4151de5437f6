// Reads a config section into an options struct by its table, gathering every problem on the way.
#include <cmath>
#include <filesystem>
#include <map>

#include <drivetrain/options.h>

#include "base/piped.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "base/templates.h"
#include "base/text_values.h"
#include "base/value_error.h"
#include "contract/top_level_keys.h"

namespace drivetrain {
namespace {

std::string plain_number(double x) {
  if (x == std::floor(x) && std::fabs(x) < 1e15) return Value(static_cast<int64_t>(x)).to_json();
  return Value(x).to_json();
}

std::string range_text(const OptionField& field) {
  if (!field.maximum) return "at least " + plain_number(*field.minimum);
  if (!field.minimum) return "at most " + plain_number(*field.maximum);
  return plain_number(*field.minimum) + " to " + plain_number(*field.maximum);
}

// Relative to the folder of the file that says it; from a pipe, --set and elsewhere, to the current one.
std::string absolute_path(const std::string& path, const Position& where) {
  namespace fs = std::filesystem;
  if (path.empty()) return path;
  const fs::path folder = where.line > 0 ? folder_of_document(where.file) : fs::path();
  return fs::absolute(folder / path).lexically_normal().string();
}

std::vector<std::string> table_names(const OptionTable& table) {
  std::vector<std::string> names;
  for (const OptionField& field : table.fields()) names.push_back(field.name);
  return names;
}

class SectionReader {
 public:
  SectionReader(const std::string& owner, Problems& problems) : owner_(owner), problems_(problems) {}

  void read(const OptionTable& table, void* options, const Value& section, const std::string& path) {
    if (!section.is_object() && !section.is_null()) {
      problems_.add(section.where,
                    concat(path, " of ", owner_, ": expected an object of options, found ", describe(section)));
      return;
    }
    std::map<const OptionField*, const Value::Member*> given;
    if (section.is_object()) {
      for (const Value::Member& m : section.members()) sort_in(table, m, path, given);
    }
    for (const OptionField& field : table.fields()) {
      const auto own = given.find(&field);
      if (own != given.end() && !is_taken_away(field, own->second->value))
        read_field(field, options, own->second->value, below(path, own->second->key));
      else if (field.group)
        read(*field.group, field.member(options), Value(), below(path, field.name));
      else if (field.required)
        missing(field, section, path);
    }
  }

 private:
  // `--set KEY=null` leaves the default where null is no value of the option.
  static bool is_taken_away(const OptionField& field, const Value& value) {
    return value.is_null() && value.where.file.starts_with("--set #") && !field.group && field.type != "any" &&
           field.type != "plugin" && !field.type.ends_with("or null");
  }

  static std::string below(const std::string& path, const std::string& key) {
    return path.empty() ? shown(key) : path + "." + shown(key);
  }

  void missing(const OptionField& field, const Value& section, const std::string& path) {
    problems_.add(section.where, concat(below(path, field.name), " is missing: ", owner_, " needs it",
                                        field.help.empty() ? "" : " (" + field.help + ")"));
  }

  // Finds the field that a key means, or says what is wrong with the key.
  void sort_in(const OptionTable& table, const Value::Member& m, const std::string& path,
               std::map<const OptionField*, const Value::Member*>& given) {
    if (m.key.starts_with('_') || m.key.starts_with('$')) return;
    const OptionField* field = table.find(m.key);
    if (!field) field = redirected(table, m, path);
    if (!field) return;
    const auto [first, fresh] = given.emplace(field, &m);
    if (fresh || first->second->value == m.value) return;
    problems_.add(m.value.key_where, concat(below(path, m.key), " and ", below(path, first->second->key), " (",
                                            first->second->value.key_where.text(),
                                            ") mean the same option and differ: ", short_json(m.value), " and ",
                                            short_json(first->second->value), "\n   keep one of them"));
  }

  const OptionField* redirected(const OptionTable& table, const Value::Member& m, const std::string& path) {
    for (const OptionRedirect& r : table.redirects()) {
      if (r.name != m.key) continue;
      const std::string message = concat(below(path, m.key), " of ", owner_, ": ", r.message);
      if (r.renamed_to.empty())
        problems_.add(m.value.key_where, message);
      else
        problems_.note(m.value.key_where, message);
      return r.renamed_to.empty() ? nullptr : table.find(r.renamed_to);
    }
    problems_.add(m.value.key_where, concat(below(path, m.key), " is not an option of ", owner_,
                                            are_enough(problems_) ? "" : way_out(table, m.key, path)));
    return nullptr;
  }

  // Where an unknown key was perhaps meant to stand, else the nearest name here. Aliases are considered and not listed:
  // a list of all of them would only confuse.
  static std::string way_out(const OptionTable& table, const std::string& key, const std::string& path) {
    if (!path.empty() && is_top_level_key(key)) return concat("\n   \"", key, "\" stands at the top level of the file");
    std::vector<std::string> others;
    for (const OptionField& field : table.fields())
      others.insert(others.end(), field.aliases.begin(), field.aliases.end());
    for (const OptionRedirect& r : table.redirects())
      if (!r.renamed_to.empty()) others.push_back(r.name);
    const bool bare_section = !path.empty() && path.find('.') == std::string::npos;
    if (bare_section) others.insert(others.end(), {"type", "params", "enabled", "outside_of"});
    return suggestion(key, table_names(table), others);
  }

  void read_field(const OptionField& field, void* options, Value value, const std::string& path) {
    if (field.group) return read(*field.group, field.member(options), value, path);
    if (is_bare(path)) take_text(field, value, path);
    if (!check_and_finish(field, value, path)) return;
    try {
      field.set(options, value);
    } catch (const ValueError& e) {
      const bool element = value.is_array() && field.type.starts_with("list of");
      const bool range = e.problem.find("out of range") != std::string::npos;
      const std::string hint = field.type.starts_with("boolean") ? boolean_hint(value) : number_hint(field.type, value);
      wrong(e.where, path,
            element || range ? e.problem : "expected " + field.type + ", found " + describe(value) + hint, value);
    } catch (const Error& e) {
      wrong(value.where, path, e.what(), value);
    }
  }

  void wrong(const Position& where, const std::string& path, const std::string& what, const Value& value) {
    const bool is_auto = value.is_string() && value.as_string() == "auto";
    const bool no_text = what.starts_with("expected ") && !what.starts_with("expected string");
    const bool is_open =
        value.is_string() && (no_text ? is_mark(value.as_string()) : is_placeholder(value.as_string()));
    problems_.add(where,
                  concat(path, " of ", owner_, ": ", what,
                         is_auto ? "\n   there is no rule for \"auto\" here; leave the key out for the default" : "",
                         is_open ? "\n   it looks like a placeholder of a template; put the value in its place" : ""));
  }

  // A section without {type, params}, which DeepSpeed reads by types.
  static bool is_bare(const std::string& path) {
    const bool params = path.starts_with("params.") || path.find(".params.") != std::string::npos;
    return path.find('.') != std::string::npos && !params;
  }

  void take_text(const OptionField& field, Value& value, const std::string& path) {
    const auto plain = plain_value(field.type, value);
    if (!plain) return;
    problems_.note(value.where, concat(path, " is ", describe(value), "; it is read as ", plain->to_json()));
    value = *plain;
  }

  // Checks length, range and choices; writes choices as the table does and paths as absolute ones.
  bool check_and_finish(const OptionField& field, Value& value, const std::string& path) {
    if (value.is_array() && field.length && value.items().size() != *field.length) {
      wrong(value.where, path, concat("expected ", *field.length, " elements, found ", value.items().size()), value);
      return false;
    }
    return finish_all(field, value, path);
  }

  // The value, or every element of a list, also of lists within it.
  bool finish_all(const OptionField& field, Value& value, const std::string& path) {
    if (!value.is_array()) return finish_scalar(field, value, path);
    bool good = true;
    for (size_t i = 0; i < value.items().size(); ++i)
      good = finish_all(field, value.items()[i], concat(path, "[", i, "]")) && good;
    return good;
  }

  bool finish_scalar(const OptionField& field, Value& value, const std::string& path) {
    if (value.is_number()) return in_range(field, value, path);
    if (!value.is_string()) return true;  // `set` judges the type
    if (value.as_string().find('\0') != std::string::npos) {
      problems_.add(value.where,
                    concat(path, " holds the character \\u0000, at which names of files and keys end; leave it out"));
      return false;
    }
    if (field.is_path) replace(value, absolute_path(value.as_string(), value.where));
    if (field.choices.empty()) return true;
    for (const std::string& choice : field.choices) {
      if (lower_case(choice) != lower_case(value.as_string())) continue;
      replace(value, choice);
      return true;
    }
    problems_.add(value.where, concat(path, " is ", short_json(value), ", but ", owner_, " takes ",
                                      quoted_choice(field.choices), did_you_mean(value.as_string(), field.choices)));
    return false;
  }

  bool in_range(const OptionField& field, const Value& value, const std::string& path) {
    const double x = value.as_double();
    const bool good = !(field.minimum && x < *field.minimum) && !(field.maximum && x > *field.maximum);
    if (!good) {
      problems_.add(value.where, concat(path, " is ", value.to_json(), ", but ", owner_, " takes ", range_text(field)));
    }
    return good;
  }

  static void replace(Value& value, const std::string& text) {
    Value fresh(text);
    fresh.where = value.where, fresh.key_where = value.key_where;
    value = std::move(fresh);
  }

  const std::string& owner_;
  Problems& problems_;
};

}  // namespace

std::shared_ptr<void> OptionTable::parse(const Value& section, const std::string& owner, const std::string& path,
                                         Problems& problems) const {
  std::shared_ptr<void> options = make_();
  const size_t before = problems.list().size();
  SectionReader(owner, problems).read(*this, options.get(), section, path);
  if (!finish_ || problems.list().size() > before) return options;
  try {
    finish_(options.get());
  } catch (const Error& e) {
    problems.add(section.where, e.what(), e.code());
  }
  return options;
}

Value OptionTable::to_value(const void* options) const {
  Value value = Value::object();
  for (const OptionField& field : fields_) {
    // `member` only adds an offset; it takes void* because parsing writes through it.
    if (field.group)
      value.set(field.name, field.group->to_value(field.member(const_cast<void*>(options))));
    else
      value.set(field.name, field.get(options));
  }
  return value;
}

PluginChoice OptionType<PluginChoice>::from(const Value& v) {
  PluginChoice choice;
  if (v.is_null()) return choice;
  if (v.is_string()) {
    choice.type = v.as_string();
    return choice;
  }
  const Value* type = v.is_object() ? v.find("type") : nullptr;
  if (!type || !type->is_string())
    throw fail(ErrorCode::config, "expected \"NAME\" or {\"type\": \"NAME\", \"params\": {...}}, found ", describe(v));
  choice.type = type->as_string();
  if (const Value* params = v.find("params"); params && params->is_object()) choice.params = *params;
  return choice;
}

Value OptionType<PluginChoice>::to(const PluginChoice& x) {
  return x.type.empty() ? Value() : Value::Object{{"type", x.type}, {"params", x.params}};
}

const OptionField* OptionTable::find(const std::string& name) const {
  for (const OptionField& field : fields_) {
    if (field.name == name) return &field;
    for (const std::string& alias : field.aliases) {
      if (alias == name) return &field;
    }
  }
  return nullptr;
}

}  // namespace drivetrain
