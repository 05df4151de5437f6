// --set: a path of keys into the config. Sections have two spellings ({type, params} or bare options), and an option is
// reached by the same path in both.
#include "config_files/load.h"

#include <string_view>

#include "base/json_read.h"
#include "base/printable.h"
#include "base/value_error.h"
#include "config/section_words.h"
#include "config_files/layers.h"
#include "config_files/relaxed_json.h"

namespace drivetrain {
namespace {

constexpr std::string_view kSet = "--set #";

// Numbers by what they are, however they are written: 1 and 1.0.
bool same(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number() && a.is_int() != b.is_int()) return a.as_double() == b.as_double();
  if (!a.is_array() || !b.is_array()) return a == b;
  return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same);
}

// What stands at a key of a section in either spelling, or nullptr.
const Value* part_of(const Value& section, const std::string& key) {
  if (section.is_string()) return key == "type" ? &section : nullptr;
  if (const Value* const found = section.find(key)) return found;
  if (key == "params") return &section;
  const Value* const params = is_section_word(key) ? nullptr : section.find("params");
  return params ? params->find(key) : nullptr;
}

// Notes what earlier arguments asked for in a value that `where` sets at `whole`, and the new one does not.
struct Lost {
  const Position& where;
  const std::string& whole;
  Problems& problems;

  void note(const Value& old, const Value* now, const std::string& path) const {
    if (old.is_null() || (now && same(*now, old))) return;
    if (old.is_object() && !old.members().empty()) {
      for (const Value::Member& m : old.members())
        note(m.value, now ? now->find(m.key) : nullptr, concat(path, ".", shown(m.key)));
    } else if (const std::string& by = old.where.file; by.starts_with(kSet)) {
      const std::string was = concat(shown(old.to_json()), " of ", by);
      problems.note(where, now ? concat(path, ": ", shown(now->to_json()), " is what counts, and not ", was)
                               : concat(path, " = ", was, " is dropped, since this one sets ", whole, " as a whole"));
    }
  }

  void note_section(const Value& old, const Value& now) const {
    if (old.is_string() && now.is_object() && now.find("type")) return note(old, now.find("type"), whole + ".type");
    if (!old.is_object() || old.members().empty()) return note(old, &now, whole);
    for (const Value::Member& m : old.members()) note(m.value, part_of(now, m.key), concat(whole, ".", shown(m.key)));
  }
};

Value empty_object(const Position& where) {
  Value object = Value::object();
  object.where = object.key_where = where;
  return object;
}

void widen_string(Value& section, const Position& where) {
  Value typed = empty_object(where);
  typed.key_where = section.key_where;
  typed.set("type", section);
  section = std::move(typed);
}

// {lr: 1} becomes {params: {lr: 1}}, so that a type can stand beside it.
void widen_bare(Value& section, const Position& where) {
  Value params = empty_object(where);
  for (const Value::Member& m : section.members()) {
    if (!is_section_word(m.key)) params.set(m.key, m.value);
  }
  for (const Value::Member& m : params.members()) section.erase(m.key);
  if (!params.members().empty()) section.set("params", std::move(params));
}

class SetPath {
 public:
  SetPath(const std::string& keys, const Position& where) : where_(where) {
    for (size_t begin = 0; begin <= keys.size();) {
      const size_t end = std::min(keys.find('.', begin), keys.size());
      keys_.push_back(keys.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  bool has_empty_key() const {
    for (const std::string& key : keys_) {
      if (key.empty()) return true;
    }
    return false;
  }

  // Throws ValueError where the path runs into a value that has no keys. Of two arguments for one key the later one
  // counts, which is noted: a script may put its user's behind its own.
  void assign(Value& config, Value value, Problems& problems) {
    Value* at = &config;
    for (size_t depth = 0; depth < keys_.size(); ++depth) {
      if (depth == 1) at = section_part(*at, keys_[depth], keys_.size() == 2);
      if (depth + 1 == keys_.size()) break;
      at = &child(*at, depth);
    }
    value.key_where = where_;
    const std::string whole = path(keys_.size() - 1);
    if (const Value* const old = at->find(keys_.back())) {
      const Lost lost{where_, whole, problems};
      keys_.size() == 1 ? lost.note_section(*old, value) : lost.note(*old, &value, whole);
    }
    at->set(keys_.back(), std::move(value));
  }

 private:
  // The object inside a top-level section that `key` belongs to.
  Value* section_part(Value& section, const std::string& key, bool last) {
    if (key == "type" && last && !is_typed(section)) widen_bare(section, where_);
    if (key == "params" && !is_typed(section) && !section.members().empty()) widen_bare(section, where_);
    if (is_section_word(key) || !is_typed(section)) return &section;
    const Value* params = section.find("params");
    if (!params || params->is_null()) section.set("params", empty_object(where_));
    return as_object(const_cast<Value&>(*section.find("params")), shown(keys_[0]) + ".params");
  }

  Value& child(Value& parent, size_t depth) {
    const Value* old = parent.find(keys_[depth]);
    if (!old || old->is_null()) return parent.set(keys_[depth], empty_object(where_));
    Value& value = const_cast<Value&>(*old);
    if (value.is_string() && depth == 0) widen_string(value, where_);
    return *as_object(value, path(depth));
  }

  Value* as_object(Value& value, const std::string& path) {
    if (value.is_object()) return &value;
    throw ValueError(where_, concat(path, " (", value.where.text(), ") has no keys: it is ", describe(value),
                                    "\n   set it as a whole: ", path, "=VALUE"));
  }

  std::string path(size_t depth) const {
    std::string text = shown(keys_[0]);
    for (size_t i = 1; i <= depth; ++i) text += "." + shown(keys_[i]);
    return text;
  }

  std::vector<std::string> keys_;
  const Position where_;
};

}  // namespace

void apply_set(Value& config, const std::string& argument, int number, Problems& problems) {
  const Position where{concat(kSet, number), 0, 0};
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) {
    return problems.add(where,
                        concat("`", shown(argument), "` has no '='; write KEY=VALUE, for example train_steps=100"));
  }
  SetPath path(argument.substr(0, equals), where);
  if (path.has_empty_key()) {
    return problems.add(where, concat("`", shown(argument), "` has an empty key; write a.b.c=VALUE"));
  }
  const std::string text = argument.substr(equals + 1);
  Value value;
  Problem syntax;
  if (!read_json(text, where.file, JsonPositions::none, value, syntax, problems)) value = Value(text);
  value.where = where;
  try {
    path.assign(config, std::move(value), problems);
  } catch (const ValueError& e) {
    problems.add(e.where, e.problem);
  }
}

Value load_config(const std::string& path, const std::vector<std::string>& sets, Problems& problems,
                  const std::vector<std::string>& below) {
  Value config = read_config_file(path, problems);
  if (!config.is_object()) {
    throw ValueError(config.where, concat("a config is an object of settings, found ", describe(config)));
  }
  config = with_layers_below(std::move(config), path, problems);
  if (!below.empty()) {
    Value lower = Value::object();
    for (const std::string& file : below) lower = merged_configs(std::move(lower), read_layer(file, problems));
    lower.where = config.where;
    config = merged_configs(std::move(lower), config);
  }
  for (size_t i = 0; i < sets.size(); ++i) apply_set(config, sets[i], static_cast<int>(i) + 1, problems);
  return config;
}

}  // namespace drivetrain
