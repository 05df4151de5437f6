// The two files of a PEFT adapter (0.21): adapter_config.json and adapter_model.safetensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <drivetrain/weight_rules.h>

#include "options.h"

namespace drivetrain::lora {

inline constexpr const char* kWeightsFile = "adapter_model.safetensors";
inline constexpr const char* kConfigFile = "adapter_config.json";
inline constexpr const char* kPrefix = "base_model.model.";

// Takes from the adapter in `folder` what the options leave out. Error(config): the folder has no adapter of this form;
// an option contradicts it; it has a key that changes the computation and is not honoured.
void take_settings(Options& options, const std::string& folder);

// `targets`: a list of names or a regular expression. `fan_in_fan_out`: the model keeps its matrices as [in, out].
Value written_config(const Options& options, const Value& targets, bool fan_in_fan_out);

// Names of tensors, without kPrefix, and their shapes.
using Shapes = std::map<std::string, std::vector<int64_t>>;
// Error(config): tensors of the folder are those of another model or of other targets, or missing. `further`: names,
// without kPrefix, of modules that are trained whole.
void check_tensors(const std::string& folder, const Shapes& wanted, const std::vector<std::string>& further);

}  // namespace drivetrain::lora
