// Types by the names that people and RunFacts::compute_dtype use.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace drivetrain {

inline std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    default:
      return c10::toString(type);
  }
}

}  // namespace drivetrain
