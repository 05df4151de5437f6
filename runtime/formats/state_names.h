// The first parts of names in a run's state, and shapes as matrices. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain {

inline const std::string kModelNames = "model/", kOptimizerNames = "optimizer/";

// All of a tensor.
inline StateBox whole_box(const std::vector<int64_t>& shape) {
  StateBox box{0, 0, shape.empty() ? 1 : shape[0], 1};
  for (size_t i = 1; i < shape.size(); ++i) box.columns *= shape[i];
  return box;
}

}  // namespace drivetrain
