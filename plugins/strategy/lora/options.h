// The options of strategy/lora, under the names of PEFT's adapter_config.json as well, all of whose keys may stand
// beside them (peft_keys.h). What they leave out is taken
// from the adapter that the run goes on with, or is PEFT's default. Value semantics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "peft_keys.h"

namespace drivetrain::lora {

struct Options : PeftOptions {
  std::optional<int64_t> rank;
  std::optional<double> alpha, dropout;
  Value targets;  // list of name ends, regular expression of whole paths, or "all-linear"
  Value exclude_modules;
  std::optional<bool> rslora;
  Value rank_pattern, alpha_pattern;  // {name end or regular expression: number}
  std::optional<std::vector<std::string>> modules_to_save;
  Value layers_to_transform;              // an index or a list of them
  Value init_lora_weights;                // true or "gaussian"
  std::optional<std::string> base_model;  // is written to the adapter's file
  std::string from;                       // folder
  std::string save = "adapter";

  bool writes_adapter() const { return save != "merged"; }
  bool writes_model() const { return save != "adapter"; }
  bool gaussian() const { return init_lora_weights.is_string(); }
};

// Both names that the key may have in a config.
inline constexpr const char* kTargets = "target_modules (targets)";

OptionTable option_table();

// alpha / rank, or alpha / sqrt(rank).
double scale_of(double alpha, int64_t rank, bool rslora);

}  // namespace drivetrain::lora
