// What cross entropy on the CPU does with a row of logits. Source files of kernels/loss include it, each for itself.
#pragma once

#include <cstdint>

#include "kernels/common/lanes.h"
#include "kernels/common/vector_math.h"

namespace drivetrain::kernels {
namespace {

// Exponentials of so many columns are added in float32, the blocks' sums in float64.
constexpr int64_t kBlock = 2048;

DRIVETRAIN_INLINE float larger(float a, float b) { return a > b ? a : b; }

// NaN is passed over here; it comes back through the sum.
DRIVETRAIN_VECTOR_CLONES float maximum(const float* x, int64_t n) {
  float lanes[4 * kLanes];
  for (float& lane : lanes) lane = x[0];
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int64_t j = 0; j < 4 * kLanes; ++j) lanes[j] = larger(x[i + j], lanes[j]);
  }
  for (; i < n; ++i) lanes[0] = larger(x[i], lanes[0]);
  for (int64_t j = 1; j < 4 * kLanes; ++j) lanes[0] = larger(lanes[j], lanes[0]);
  return lanes[0];
}

// e^x for x <= 0 or NaN. Its relative error, 6e-8 |x|, is what the rounding of logits so far apart brings anyway.
DRIVETRAIN_INLINE float exp_below(float x) {
  const float t = x * kLog2E;
  const float value = exp2_in_range(t);
  return t < -126.0F ? 0.0F : value;
}

}  // namespace
}  // namespace drivetrain::kernels
