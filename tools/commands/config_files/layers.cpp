#include "config_files/layers.h"

#include <algorithm>
#include <filesystem>

#include "base/piped.h"
#include "base/printable.h"
#include "base/value_error.h"
#include "config/section_words.h"
#include "config_files/relaxed_json.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtends = "extends";
constexpr size_t kMostDeep = 32;

void merge_objects(Value& lower, const Value& upper) {
  for (const Value::Member& m : upper.members()) {
    const Value* const below = lower.find(m.key);
    if (below && below->is_object() && m.value.is_object()) {
      Value both = *below;
      merge_objects(both, m.value);
      lower.set(m.key, std::move(both));
    } else {
      lower.set(m.key, m.value);
    }
  }
}

// {"lr": 1} as {"params": {"lr": 1}}.
Value as_typed(const Value& section) {
  Value typed = Value::object(), params = Value::object();
  typed.where = params.where = section.where, typed.key_where = params.key_where = section.key_where;
  for (const Value::Member& m : section.members()) (is_section_word(m.key) ? typed : params).set(m.key, m.value);
  if (!params.members().empty()) {
    const Value* const own = typed.find("params");
    Value both = own && own->is_object() ? *own : Value::object();
    merge_objects(both, params);
    typed.set("params", std::move(both));
  }
  return typed;
}

bool is_other_type(const Value& lower, const Value& upper) {
  const Value *below = lower.find("type"), *above = upper.find("type");
  return below && above && !(*below == *above);
}

Value merged_section(const Value& lower, const Value& upper) {
  if (is_other_type(lower, upper)) return upper;
  const bool typed = is_typed(lower) || is_typed(upper);
  Value both = typed ? as_typed(lower) : lower;
  both.where = upper.where, both.key_where = upper.key_where;
  merge_objects(both, typed ? as_typed(upper) : upper);
  return both;
}

// What one file extends, each with the place where it is named.
std::vector<Value> names_in(const Value& extends) {
  std::vector<Value> names;
  if (extends.is_array())
    names.assign(extends.items().begin(), extends.items().end());
  else
    names.push_back(extends);
  for (const Value& name : names)
    if (!name.is_string() || name.as_string().empty())
      throw ValueError(name.where,
                       concat("extends is a file or a list of files to read first, found ", describe(name)));
  return names;
}

class Layers {
 public:
  explicit Layers(Problems& problems) : problems_(problems) {}

  Value read(const std::string& path) {
    Value config = read_config_file(path, problems_);
    if (!config.is_object())
      throw ValueError(config.where, concat("a config is an object of settings, found ", describe(config)));
    return below(std::move(config), path);
  }

  Value below(Value config, const std::string& path) {
    const Value* const extends = config.find(kExtends);
    if (!extends) return config;
    const std::vector<Value> names = extends->is_null() ? std::vector<Value>() : names_in(*extends);
    config.erase(kExtends);
    open_.push_back(canonical(path));
    Value lower = Value::object();
    for (const Value& name : names) lower = merged_configs(std::move(lower), read(name, path));
    open_.pop_back();
    if (names.empty()) return config;
    Value both = merged_configs(std::move(lower), config);
    both.where = config.where;
    return both;
  }

 private:
  static std::string canonical(const std::string& path) {
    std::error_code unknown;
    const fs::path found = fs::weakly_canonical(path, unknown);
    return unknown ? path : found.string();
  }

  Value read(const Value& name, const std::string& from) {
    const std::string path = (folder_of_document(from) / name.as_string()).lexically_normal().string();
    const auto again = std::find(open_.begin(), open_.end(), canonical(path));
    if (again != open_.end() || open_.size() >= kMostDeep)
      throw ValueError(name.where, concat("extends names ", shown(name.as_string()),
                                          again != open_.end() ? ", which extends this file itself" : ": too deep",
                                          "\n   leave one of the two out"));
    std::error_code unknown;
    if (!fs::exists(path, unknown))
      throw ValueError(name.where, concat("extends names ", shown(name.as_string()), ", but there is no file ",
                                          shown(path), "\n   a path is relative to the file that names it"));
    return read(path);
  }

  Problems& problems_;
  std::vector<std::string> open_;  // from the first file to the one that is read
};

}  // namespace

Value merged_configs(Value lower, const Value& upper) {
  for (const Value::Member& m : upper.members()) {
    const Value* const below = lower.find(m.key);
    const bool both = below && below->is_object() && m.value.is_object();
    lower.set(m.key, both ? merged_section(*below, m.value) : m.value);
  }
  return lower;
}

Value with_layers_below(Value config, const std::string& path, Problems& problems) {
  return Layers(problems).below(std::move(config), path);
}

Value read_layer(const std::string& path, Problems& problems) { return Layers(problems).read(path); }

std::string missing_half(const Value& config, const std::string& path) {
  for (const char* key : {"train_steps", "model", "dataset"})
    if (config.find(key)) return {};
  if (config.members().empty()) return {};
  const std::string file = shown(path);
  return concat(
      "this file says how to train and not what: a DeepSpeed file has no \"model\", \"dataset\" and "
      "\"train_steps\", which a run needs\n   write run.json: {\"extends\": \"",
      file,
      "\", \"train_steps\": 1000, \"model\": {\"type\": ...}, \"dataset\": {\"type\": ...}}, and start it: "
      "drivetrain launch run.json\n   or leave \"extends\" out: drivetrain launch run.json --deepspeed ",
      file);
}

}  // namespace drivetrain
