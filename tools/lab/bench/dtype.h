// The type that a benchmark's --dtype names.
#pragma once

#include <ATen/core/Tensor.h>

#include "bench/bench.h"

namespace drivetrain {

// f32, bf16 or f16: the table of options refuses others.
inline at::ScalarType bench_dtype(const BenchArguments& arguments) {
  const std::string name = arguments.text("--dtype");
  if (name == "f32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  return at::kHalf;
}

}  // namespace drivetrain
