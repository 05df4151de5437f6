// What the options of Megatron-LM that a checkpoint keeps ("args") say of the model. A table (arguments_table.cpp) says
// what is done with each; README.md shows it. Any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <drivetrain/toolkit/torch_files/torch_file.h>
#include <drivetrain/value.h>

namespace drivetrain::megatron {

enum class Use {
  compared,  // a fact, which the run's model has to state of itself with the same value
  refused,   // any value but the plain ones is another model of the same tensors, which nothing here computes
  no_effect  // on what the tensors compute
};

struct Argument {
  const char* names;  // a regular expression for those without effect; else one name, or old and new ones: "a|b"
  Use use;
  const char* plain;  // of a refused one: a JSON list of values that ask for nothing; null always is one
  const char* why;
};
std::span<const Argument> arguments();

struct SaidOfModel {
  Value facts = Value::object();  // under Megatron Core's names, by what they come to: `activation`, `rope_scaling`
  std::vector<std::string> notes;
};

// Error(checkpoint) naming file, option and value for a refused option, and for two spellings that differ.
SaidOfModel said_of_model(const TorchFile& file);

}  // namespace drivetrain::megatron
