// What the options of Megatron-LM that a checkpoint keeps ("args") say of the model. A table (arguments_table.cpp) says
// what is done with each; README.md shows it. Any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <drivetrain/toolkit/files/key_table.h>
#include <drivetrain/toolkit/torch_files/torch_file.h>
#include <drivetrain/value.h>

namespace drivetrain::megatron {

// Compared: a fact, which the run's model has to state of itself with the same value. Refused: null always asks for
// nothing.
std::span<const KeyRow> arguments();
// The part of the table whose names are regular expressions.
inline constexpr const char* kPatterns = "by patterns";

struct SaidOfModel {
  Value facts = Value::object();  // under Megatron Core's names, by what they come to: `activation`, `rope_scaling`
  std::vector<std::string> notes;
};

// Error(checkpoint) naming file, option and value for a refused option, and for two spellings that differ.
SaidOfModel said_of_model(const TorchFile& file);

}  // namespace drivetrain::megatron
