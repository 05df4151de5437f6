// A model: facts about it, the chain of units it is made of, and its names in other people's files. Thread: main.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(model)

namespace drivetrain {

// One tensor of a foreign file that supplies rows of one of ours.
struct WeightPart {
  std::string name;      // without the optional prefix
  int64_t rows = 0;      // of our tensor's first dimension that it supplies (our orientation)
  bool prefixed = true;  // false: it stands outside WeightRules::prefix ("lm_head.weight")
};

// One of our parameters and where its values stand in a foreign file.
// Reading stacks the parts along our first dimension; writing cuts them.
// The foreign tensor is [rows, ...], or its transpose [..., rows].
struct WeightRule {
  std::string param;
  std::vector<WeightPart> parts;
  bool transposed = false;
};

// A whole format as data; export reads it backwards.
struct WeightRules {
  std::vector<WeightRule> rules;
  std::string prefix;  // "transformer.": written; accepted and omitted alike when reading
  // Regular expressions of foreign names that carry nothing (mask buffers); each matches a whole name, prefix left out.
  std::vector<std::string> ignored;
  // A foreign tensor that must equal one of ours if it is there (a tied output layer): foreign name -> our parameter.
  std::vector<std::pair<std::string, std::string>> tied;
  Value config;  // the folder's config.json, for export
};

class DRIVETRAIN_API Model : public Plugin {
 public:
  static constexpr const char* kKind = "model";
  ~Model() override;
  virtual ModelFacts facts() const = 0;
  virtual std::vector<UnitPtr> build(LayerFactory& layers) = 0;
  virtual double cost(const Unit& unit) const = 0;  // relative, for the partition over pipeline stages
  virtual WeightRules weight_rules(
      const std::string& format) const = 0;  // "hf"; Error(config) for one it does not know
  // Folder to take the initial weights from, empty: the parameters' own rules.
  virtual std::string weights_folder() const { return {}; }
  // Whether tokens are bytes (vocabulary 256 or more, token = byte): what `generate` needs without a tokenizer.
  virtual bool byte_vocabulary() const { return facts().vocab_size >= 256 && facts().vocab_size <= 512; }
};

}  // namespace drivetrain
