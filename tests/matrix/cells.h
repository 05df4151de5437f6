// The composition matrix: what may be combined with what, as data. A cell takes one value of every factor; it is run,
// or one of the rules excuses it and says why. Value types, no state.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain::test {

struct FactorValue {
  const char* name;      // part of a cell's name
  const char* sections;  // added to the config
  const char* plugins;   // that these lead to, "kind/name", with blanks between
  int ranks = 1;         // the number of ranks is the product over all factors
};
struct Factor {
  const char* name;
  std::vector<FactorValue> values;
};

enum FactorIndex {
  kSharding,
  kData,
  kExperts,
  kTensor,
  kContext,
  kPipeline,
  kRecompute,
  kAttention,
  kBlock,
  kModel,
  kFactors
};
const std::vector<Factor>& factors();

using Cell = std::array<int, kFactors>;  // for each factor the index of its value

const FactorValue& value_of(const Cell& cell, FactorIndex factor);
int ranks_of(const Cell& cell);
std::string name_of(const Cell& cell);
// The cell with these values, the first one of every factor not named: {"zero3", "tp2"}. Throws on an unknown name.
Cell cell_of(const std::vector<std::string>& values);
// All of them, the last factor fastest.
std::vector<Cell> every_cell();

struct Rule {
  const char* name;
  const char* why;
  bool (*excuses)(const Cell& cell);
  const char* says;  // part of the runtime's refusal; null: a limit of the matrix itself, nothing the runtime refuses
};
const std::vector<Rule>& rules();
const Rule* excuse(const Cell& cell);  // the first rule that excuses the cell, or null
std::vector<Cell> legal_cells();

// `base` (curve.h: steps, data, optimizer) with the sections of the cell.
Value config_of(const Cell& cell, const Value& base);
// Adds the sections of a JSON object to a config.
void add_sections(Value& config, const std::string& sections);

}  // namespace drivetrain::test
