// Whether a GPU multiplies in 8 bits.
#pragma once

#include <cstdint>
#include <string>

namespace drivetrain::fp8 {

// Why a GPU of compute capability `arch` (90: sm_90) is refused, and what to do; empty if it is not.
std::string refusal(int64_t index, int arch);

}  // namespace drivetrain::fp8
