#include "options.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>

#include "pattern.h"
#include "peft_folder.h"

namespace drivetrain::lora {
namespace {

constexpr double kMostDropout = 0.999;

// With an alpha of 0 an adapter adds nothing, and never will: its gradients are 0, too.
bool is_alpha(double alpha) { return std::isfinite(alpha) && alpha != 0; }

void check_patterns(const Value& patterns, const char* key, bool whole) {
  if (!patterns.is_object())
    throw fail(ErrorCode::config, key, ": wanted an object of module names and numbers, found ", patterns.type_name());
  for (const auto& [name, value] : patterns.members()) {
    check_expression(name, key);
    if (!(whole ? value.is_int() && value.as_int() >= 1 : value.is_number() && is_alpha(value.as_double())))
      throw fail(ErrorCode::config, key, ": \"", name, "\" has ", value.to_json(), "; wanted ",
                 whole ? "a rank of at least 1" : "a number other than 0");
  }
}

bool are_all(const Value& list, bool (Value::*is_right)() const) {
  return list.is_array() &&
         std::all_of(list.items().begin(), list.items().end(), [&](const Value& item) { return (item.*is_right)(); });
}

void check_names(const Value& names, const char* key) {
  if (names.is_null()) return;
  if (names.is_string()) return check_expression(names.as_string(), key);
  if (!are_all(names, &Value::is_string))
    throw fail(ErrorCode::config, key, ": wanted a list of module names or a regular expression, found ",
               names.to_json());
}

void check_layers(const Value& layers) {
  if (!layers.is_null() && !layers.is_int() && !are_all(layers, &Value::is_int))
    throw fail(ErrorCode::config, "layers_to_transform: wanted the number of a layer or a list of them, found ",
               layers.to_json());
}

void check_init(const Value& init) {
  if (init == Value(true)) return;
  if (init.is_string() && init.as_string() == "gaussian") return;
  throw fail(ErrorCode::config, "init_lora_weights: ", init.to_json(),
             " is not known here: use true, with which "
             "adapters start as in the paper, or \"gaussian\"; the other ways of PEFT's change the base weights");
}

// Also of an adapter that is gone on with: no table of options has seen its numbers.
void check_numbers(const Options& o) {
  const std::string in = o.from.empty() ? "" : concat(o.from, "/", kConfigFile, ": ");
  const auto refuse = [&](const char* key, auto found, const char* wanted) {
    throw fail(ErrorCode::config, in, key, ": is ", found, wanted);
  };
  if (*o.rank < 1) refuse("r", *o.rank, "; wanted at least 1");
  if (!is_alpha(*o.alpha))
    refuse("lora_alpha", *o.alpha,
           ", with which adapters add nothing and learn nothing; wanted a number other than 0, "
           "such as the rank");
  if (!(*o.dropout >= 0 && *o.dropout <= kMostDropout))
    refuse("lora_dropout", *o.dropout, "; wanted 0 to 0.999, the share of an adapter's input that a step leaves out");
}

template <class T>
void set_default(std::optional<T>& option, const T& value) {
  if (!option) option = value;
}
void set_default(Value& option, const Value& value) {
  if (option.is_null()) option = value;
}

void finish(Options& o) {
  if (!o.from.empty()) take_settings(o, o.from);
  set_default(o.rank, int64_t{8}), set_default(o.alpha, 8.0), set_default(o.dropout, 0.0);
  set_default(o.rslora, false), set_default(o.modules_to_save, std::vector<std::string>{});
  set_default(o.rank_pattern, Value::object()), set_default(o.alpha_pattern, Value::object());
  set_default(o.init_lora_weights, Value(true));
  check_names(o.targets, kTargets), check_names(o.exclude_modules, "exclude_modules");
  check_patterns(o.rank_pattern, "rank_pattern", true), check_patterns(o.alpha_pattern, "alpha_pattern", false);
  check_init(o.init_lora_weights), check_layers(o.layers_to_transform);
  check_numbers(o);
}

}  // namespace

double scale_of(double alpha, int64_t rank, bool rslora) {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

OptionTable option_table() {
  TableBuilder<Options> t;
  t.field("rank", &Options::rank, "columns of B and rows of A; 8, or that of the adapter in `from`")
      .at_least(1)
      .alias("r")
      .field("alpha", &Options::alpha, "adapters count alpha / rank times; 8, or that of the adapter in `from`")
      .alias("lora_alpha")
      .field("dropout", &Options::dropout, "share of each adapter's input that a training step leaves out; 0")
      .range(0, kMostDropout)
      .alias("lora_dropout")
      .field(
          "targets", &Options::targets,
          "linear layers with adapters: ends of Hugging Face module names, one regular expression of whole names, or "
          "\"all-linear\"; else q_proj and v_proj, or c_attn")
      .alias("target_modules")
      .field("exclude_modules", &Options::exclude_modules, "which of them have none, in the same forms")
      .field("rslora", &Options::rslora, "adapters count alpha / sqrt(rank) times")
      .alias("use_rslora")
      .field("rank_pattern", &Options::rank_pattern, "ranks of some modules, by name end or regular expression")
      .field("alpha_pattern", &Options::alpha_pattern, "alphas of some modules, in the same form")
      .field("modules_to_save", &Options::modules_to_save, "ends of names of modules that are trained whole")
      .field("layers_to_transform", &Options::layers_to_transform, "number of the only layer with adapters, or a list")
      .field("init_lora_weights", &Options::init_lora_weights,
             "true: A uniform within 1 / sqrt(inputs); \"gaussian\": normal of standard deviation 1 / rank; B zero")
      .field("base_model", &Options::base_model, "name of the base model in the adapter's file")
      .alias("base_model_name_or_path")
      .field("from", &Options::from, "PEFT folder to go on with")
      .path()
      .field("save", &Options::save, "what is written: the adapter, the model with the adapter added to it, or both")
      .one_of({"adapter", "merged", "both"})
      .finish(finish);
  PeftOptions::add_to(t);
  return t;
}

}  // namespace drivetrain::lora
