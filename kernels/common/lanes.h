// Sums in float32 whose order is fixed by the length alone: element i goes to lane i mod kLanes, lanes are folded by
// halves. The same bits in every vector width; error about (n / kLanes + 5) half ulps.
#pragma once

#include <cstdint>

#include "kernels/common/vector_clones.h"

namespace drivetrain::kernels {

inline constexpr int64_t kLanes = 32;

// Sum of term(i) for i in [0, n).
template <class Term>
DRIVETRAIN_INLINE float sum_lanes(int64_t n, Term term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  for (int64_t j = 0; i + j < n; ++j) lanes[j] += term(i + j);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace drivetrain::kernels
