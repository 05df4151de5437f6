#include "peft_folder.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::lora {
namespace {

// The keys of options, beside their names in the config.
const std::pair<const char*, const char*> kOptionKeys[] = {{"r", "rank"},
                                                           {"lora_alpha", "alpha"},
                                                           {"target_modules", "targets"},
                                                           {"exclude_modules", "exclude_modules"},
                                                           {"use_rslora", "rslora"},
                                                           {"rank_pattern", "rank_pattern"},
                                                           {"alpha_pattern", "alpha_pattern"},
                                                           {"modules_to_save", "modules_to_save"},
                                                           {"layers_to_transform", "layers_to_transform"},
                                                           {"lora_dropout", "dropout"},
                                                           {"base_model_name_or_path", "base_model"}};

// Lists of names have no order.
Value in_order(Value v) {
  if (v.is_array())
    std::sort(v.items().begin(), v.items().end(),
              [](const Value& a, const Value& b) { return a.to_json() < b.to_json(); });
  return v;
}

bool same(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  return in_order(a) == in_order(b) || (says_nothing(a) && says_nothing(b));
}

template <class T>
Value value_of(const std::optional<T>& option) {
  return OptionType<std::optional<T>>::to(option);
}

// Keeps the option if it is given, and equal; otherwise takes the file's.
class Settings {
 public:
  Settings(const Value& file, const std::string& path) : file_(file), path_(path) {}

  template <class T>
  void take(const char* key, const char* name, std::optional<T>& option) const {
    const Value found = checked(key, name, value_of(option));
    if (!option && !found.is_null()) option = OptionType<T>::from(found);
  }
  void take(const char* key, const char* name, Value& option) const {
    const Value found = checked(key, name, option);
    if (option.is_null()) option = found;
  }

 private:
  Value checked(const char* key, const char* name, const Value& given) const {
    const Value* found = file_.find(key);
    const Value there = found ? *found : Value();
    if (!given.is_null() && !same(given, there))
      throw fail(ErrorCode::config, "option ", name, " is ", given.to_json(), ", and the adapter in \"from\" has ", key,
                 " ", there.to_json(), " (", path_, "); leave the option out to go on with that adapter");
    return there;
  }

  const Value& file_;
  const std::string& path_;
};

void check_honoured(const Value& file, const std::string& path) {
  const auto refuse = [&](const std::string& key, const Value& value, const std::string& why) {
    throw fail(ErrorCode::config, path, ": ", key, " ", value.to_json(), " ", why);
  };
  for (const auto& [key, value] : file.members()) {
    const auto is_key = [&, &key = key](const auto& one) { return key == one.first; };
    if (std::any_of(std::begin(kOptionKeys), std::end(kOptionKeys), is_key)) continue;
    if (const PeftKey* known = find_peft_key(key)) {
      if (const std::string problem = peft_problem(*known, value); !problem.empty())
        throw fail(ErrorCode::config, path, ": ", key, " ", problem);
    } else if (key == "init_lora_weights") {
      if (!value.is_bool() && value != Value("gaussian"))
        refuse(key, value,
               "changed the base weights, which this run would read unchanged; convert the adapter to a plain "
               "one with PEFT first");
    } else if (!says_nothing(value)) {
      refuse(key, value, "cannot be honoured: it is not in this version; wanted null or false");
    }
  }
}

}  // namespace

void take_settings(Options& o, const std::string& folder) {
  const std::string path = folder + "/" + kConfigFile;
  const Value file = read_json_file(path);
  if (!file.is_object()) throw fail(ErrorCode::config, path, ": wanted an object, found ", file.type_name());
  check_honoured(file, path);
  const Settings settings(file, path);
  // Absent keys are PEFT's defaults.
  settings.take("r", "rank", o.rank), settings.take("lora_alpha", "alpha", o.alpha);
  settings.take("target_modules", "targets", o.targets);
  settings.take("exclude_modules", "exclude_modules", o.exclude_modules);
  settings.take("use_rslora", "rslora", o.rslora);
  settings.take("rank_pattern", "rank_pattern", o.rank_pattern);
  settings.take("alpha_pattern", "alpha_pattern", o.alpha_pattern);
  settings.take("modules_to_save", "modules_to_save", o.modules_to_save);
  settings.take("layers_to_transform", "layers_to_transform", o.layers_to_transform);
  if (const Value* dropout = file.find("lora_dropout"); dropout && !o.dropout) o.dropout = dropout->as_double();
  const Value* base = file.find("base_model_name_or_path");
  if (base && base->is_string() && !o.base_model) o.base_model = base->as_string();
}

Value written_config(const Options& o, const Value& targets, bool fan_in_fan_out) {
  const auto or_null = [](const Value& v) { return says_nothing(v) ? Value() : v; };
  const auto whole_if = [](double x) { return x == std::floor(x) ? Value(static_cast<int64_t>(x)) : Value(x); };
  return Value::Object{
      {"alora_invocation_tokens", Value()},
      {"alpha_pattern", o.alpha_pattern},
      {"arrow_config", Value()},
      {"auto_mapping", Value()},
      {"base_model_name_or_path", o.base_model.value_or("").empty() ? Value() : Value(*o.base_model)},
      {"bias", Value("none")},
      {"corda_config", Value()},
      {"ensure_weight_tying", Value(false)},
      {"eva_config", Value()},
      {"exclude_modules", or_null(o.exclude_modules)},
      {"fan_in_fan_out", Value(fan_in_fan_out)},
      {"inference_mode", Value(true)},
      {"init_lora_weights", o.init_lora_weights},
      {"kasa_config", Value()},
      {"layer_replication", Value()},
      {"layers_pattern", Value()},
      {"layers_to_transform", o.layers_to_transform},
      {"loftq_config", Value::object()},
      {"lora_alpha", whole_if(*o.alpha)},
      {"lora_bias", Value(false)},
      {"lora_dropout", Value(*o.dropout)},
      {"lora_ga_config", Value()},
      {"megatron_config", Value()},
      {"megatron_core", Value("megatron.core")},
      {"modules_to_save", or_null(value_of(o.modules_to_save))},
      {"monteclora_config", Value()},
      {"peft_type", Value("LORA")},
      {"peft_version", Value("0.21.2")},
      {"qalora_group_size", Value(16)},
      {"r", Value(*o.rank)},
      {"rank_pattern", o.rank_pattern},
      {"revision", Value()},
      {"target_modules", targets},
      {"target_parameters", Value()},
      {"task_type", Value("CAUSAL_LM")},
      {"trainable_token_indices", Value()},
      {"use_bdlora", Value()},
      {"use_dora", Value(false)},
      {"use_qalora", Value(false)},
      {"use_rslora", Value(*o.rslora)},
      {"velora_config", Value()},
  };
}

void check_tensors(const std::string& folder, const Shapes& wanted, const std::vector<std::string>& further) {
  const SafetensorsFile file = SafetensorsFile::open(folder + "/" + kWeightsFile);
  const auto refuse = [&](const auto&... what) { throw fail(ErrorCode::config, file.path(), ": ", what...); };
  for (const auto& [name, shape] : wanted) {
    if (!file.contains(kPrefix + name))
      refuse("has no tensor ", kPrefix, name, ", which this model and these targets want");
    if (const std::vector<int64_t> found = file.shape(kPrefix + name); found != shape)
      refuse("it is an adapter of another base: ", kPrefix, name, " is [", join(found), "], and this model wants [",
             join(shape), "]");
  }
  for (const std::string& name : further)
    if (!file.contains(kPrefix + name))
      refuse("has no tensor ", kPrefix, name, ", which modules_to_save asks for; save the adapter again with it, or ",
             "take its module out of modules_to_save in ", folder, "/", kConfigFile);
  for (const std::string& name : file.names()) {
    const std::string own = name.starts_with(kPrefix) ? name.substr(std::string(kPrefix).size()) : name;
    if (!wanted.contains(own) && std::find(further.begin(), further.end(), own) == further.end())
      refuse("tensor ", name,
             " belongs to nothing in this model: the adapter is of another base, or has parts that this "
             "version does not know");
  }
}

}  // namespace drivetrain::lora
