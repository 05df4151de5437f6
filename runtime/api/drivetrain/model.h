// A model: its sizes, the chain of units that it is made of, and the names of its weights in other file formats
// (Hugging Face). Thread: main.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/plugin.h>
#include <drivetrain/weight_rules.h>

DRIVETRAIN_CONTRACT(model)

namespace drivetrain {

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
  // Called when weights are read or written. Strategies ask for it too (Builder::weight_rules), before `build`. Throws
  // Error(config) for a format that it does not know.
  virtual WeightRules weight_rules(const std::string& format) const = 0;
  // Called once, after Strategy::attach. The folder to read the initial weights from; empty: Param::init applies.
  virtual std::string weights_folder() const { return {}; }
  // Whether tokens 0 to 255 are bytes. `drivetrain generate` refuses other models, since it has no tokenizer.
  virtual bool byte_vocabulary() const { return facts().vocab_size >= 256 && facts().vocab_size <= 512; }
};

}  // namespace drivetrain
