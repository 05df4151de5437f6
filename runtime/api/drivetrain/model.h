// A model: its sizes, the chain of units that it is made of, and the names of its weights in other file formats
// (Hugging Face). Thread: main.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(model)

namespace drivetrain {

// Some rows of one of our parameters, and the tensor of a foreign file that holds them. Several parts, of one parameter
// or of several, may share a tensor: it has as many rows as the part that ends last.
struct WeightPart {
  std::string name;      // of the tensor, without WeightRules::prefix
  int64_t rows = 0;      // how many rows of our first dimension it holds (in our orientation)
  bool prefixed = true;  // false: its name never has WeightRules::prefix ("lm_head.weight")
  int64_t first = 0;     // the row of the tensor where these rows begin
  bool padded = false;   // when read, the tensor may have further rows, which hold nothing (a padded vocabulary)
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

class DRIVETRAIN_API Model : public Plugin {
 public:
  static constexpr const char* kKind = "model";
  ~Model() override;
  // Called before `plan`, and later; always returns the same.
  virtual ModelFacts facts() const = 0;
  // Called once, after Strategy::build of all strategies and before the last round of `plan`. Returns the units of the
  // whole model in the order of the forward pass, the same on every rank, at least one, none null. Parameters are on
  // the meta device. `layers` is valid during the call only. May throw Error(config).
  virtual std::vector<UnitPtr> build(LayerFactory& layers) = 0;
  // Called once per unit after `build`. The time of a unit's forward and backward in any unit of time, for the
  // partition over pipeline stages. At least 0.
  virtual double cost(const Unit& unit) const = 0;
  // `format`: how tensors are named and laid out. "hf": a Hugging Face folder, which every model has to know.
  // "megatron_core": Megatron-LM, every tensor whole, under the names of its library and numbered through all stages.
  // Called when weights are read or written. Throws Error(config) for a format that it does not know.
  virtual WeightRules weight_rules(const std::string& format) const = 0;
  // Called once, after Strategy::attach. The folder to read the initial weights from; empty: Param::init applies.
  virtual std::string weights_folder() const { return {}; }
  // Whether tokens 0 to 255 are bytes. `drivetrain generate` refuses other models, since it has no tokenizer.
  virtual bool byte_vocabulary() const { return facts().vocab_size >= 256 && facts().vocab_size <= 512; }
};

}  // namespace drivetrain
