// The option data_path: "prefix", ["a", "b"] (by size), [[0.3, "a"], [0.7, "b"]] or [0.3, "a", 0.7, "b"]. Any thread.
#pragma once

#include <drivetrain/value.h>

#include <string>
#include <vector>

namespace drivetrain::megatron {

struct DataPath {
  std::vector<std::string> prefixes;
  std::vector<double> weights;  // positive, one per prefix; empty: by size
  bool one() const { return prefixes.size() == 1 && weights.empty(); }
};

// Error(config) for other forms, for weights that are negative or not finite, and if their sum is 0. Members with the
// weight 0 are left out.
DataPath parse_data_path(const Value& value);

}  // namespace drivetrain::megatron
