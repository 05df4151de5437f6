// How parameters are named and laid out in another file format, as data that reading and writing share. Models and
// strategies return it (Model::weight_rules, Strategy::weight_folders). Value semantics; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/export.h>
#include <drivetrain/value.h>

DRIVETRAIN_CONTRACT(weight_rules)

namespace drivetrain {

// What the rows of a parameter start from that the tensor of a file does not have (a vocabulary that grew).
enum class AbsentRows {
  refused,  // a file whose tensor has fewer rows is an error
  init,     // the parameter's initial values (Param::init)
  mean,     // the mean of the rows that were read, each column on its own, computed in float64
};

// Some rows of one of our parameters, and the tensor of a foreign file that holds them. Several parts, of one parameter
// or of several, may share a tensor: it has as many rows as the part that ends last.
struct WeightPart {
  std::string name;      // of the tensor, without WeightRules::prefix
  int64_t rows = 0;      // how many rows of our first dimension it holds (in our orientation)
  bool prefixed = true;  // false: its name never has WeightRules::prefix ("lm_head.weight")
  int64_t first = 0;     // the row of the tensor where these rows begin
  bool padded = false;   // when read, the tensor may have further rows, which hold nothing (a padded vocabulary)
  // When read, the tensor may end before the last rows of the part that ends last, if this is not `refused`. One rule
  // for all parts of a tensor. Writing always gives all rows.
  AbsentRows absent = AbsentRows::refused;
};

// One of our parameters, and the foreign tensors that hold its values. Reading concatenates the parts along our first
// dimension; writing splits them. A foreign tensor is [rows, ...] or, if `transposed`, [..., rows]. Rules that share a
// tensor agree in `transposed`.
struct WeightRule {
  std::string param;
  std::vector<WeightPart> parts;
  bool transposed = false;
};

// A file format as data, used for reading and for writing.
struct WeightRules {
  std::vector<WeightRule> rules;
  std::string prefix;  // "transformer.": always written; optional when reading
  // Regular expressions for foreign tensors without weights (mask buffers). Each matches a whole name without prefix.
  std::vector<std::string> ignored;
  // Foreign tensors that may be absent and must otherwise equal one of our parameters (a tied output layer):
  // foreign name -> our parameter.
  std::vector<std::pair<std::string, std::string>> tied;
  // "hf": the folder's config.json, for export. Else: what a checkpoint of this model says of it, as a format reads it
  // (the fact "model", checkpoint_format.h); the two are compared before weights are read. Null: nothing.
  Value config;
};

// A folder of weights beside the model's own: parameters that a strategy's layers made, in a format of the field
// (PEFT).
struct WeightFolder {
  // Of the folder, below the folder that is written ("adapter"). Empty: that folder itself, for strategies that keep
  // the model's own weights out of it (Strategy::exports_model).
  std::string name;
  std::string weights_file;  // "adapter_model.safetensors"
  std::string config_file;   // "adapter_config.json"; its text is WeightRules::config; empty: none
  WeightRules rules;         // of the parameters that it holds
  std::string from;          // a folder of this form, to read their initial values from; empty: Param::init
  bool written = true;       // false: it is only read
};

}  // namespace drivetrain
