// The type in which the values of ranks are added. Integers wrap, so signed and unsigned are the same. bfloat16 and
// float16 are added in float32 over all ranks and rounded once. Thread: any.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace drivetrain::toolkit {

enum class SumType : uint8_t { f32, f64, bf16, f16, i8, i16, i32, i64 };

// No value: tensors of that dtype cannot be summed.
std::optional<SumType> sum_type(at::ScalarType dtype);

}  // namespace drivetrain::toolkit
