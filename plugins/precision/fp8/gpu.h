// Whether a GPU multiplies in 8 bits.
#pragma once

#include <cstdint>
#include <string>

namespace drivetrain::fp8 {

struct Gpu {
  int64_t index = 0;
  int arch = 0;  // compute capability, 90: sm_90
  int cuda = 0;  // of the runtime, as CUDA counts: 12090 is 12.9
};

// Why it is refused for products with one scale per tensor or, `blocks`, with scales of blocks, and what to do; empty
// if it is not.
std::string refusal(const Gpu& gpu, bool blocks);

}  // namespace drivetrain::fp8
