// Names of dtypes, as in messages and RunFacts::compute_dtype. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
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
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

// The dtype for a name as DeepSpeed accepts it: "bf16", "bfloat16", "torch.bfloat16", ...; no value for other names.
inline std::optional<at::ScalarType> dtype_of(std::string name) {
  if (name.rfind("torch.", 0) == 0) name.erase(0, 6);
  if (name == "fp32" || name == "float32" || name == "float") return at::kFloat;
  if (name == "bf16" || name == "bfloat16") return at::kBFloat16;
  if (name == "fp16" || name == "float16" || name == "half") return at::kHalf;
  return std::nullopt;
}

}  // namespace drivetrain
