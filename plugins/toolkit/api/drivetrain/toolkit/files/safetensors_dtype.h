// The kinds of numbers that safetensors knows. Any thread.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>

namespace drivetrain {

struct SafetensorsDtype {
  const char* name;  // "BF16"
  int64_t bits;
  at::ScalarType torch;  // Undefined: a kind LibTorch does not have
  int order;             // the writer puts the highest first
};
const SafetensorsDtype* find_safetensors_dtype(std::string_view name);  // nullptr if the format has no such kind
const SafetensorsDtype* find_safetensors_dtype(at::ScalarType type);

}  // namespace drivetrain
