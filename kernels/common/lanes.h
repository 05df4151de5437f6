// Sums in float32 whose order is fixed by the length alone: element i goes to lane i mod kLanes, lanes are folded by
// halves. The same bits in every vector width; error about (n / kLanes + 5) half ulps.
#pragma once

#include <cstdint>

#include "kernels/common/vector_clones.h"

namespace drivetrain::kernels {

inline constexpr int64_t kLanes = 32;

// Calls step(i, lane) for i in [0, n); steps of different lanes may run side by side.
template <class Step>
DRIVETRAIN_INLINE void for_lanes(int64_t n, Step step) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) step(i + j, j);
  }
  for (int64_t j = 0; i + j < n; ++j) step(i + j, j);
}

DRIVETRAIN_INLINE float fold_lanes(float* lanes) {
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

// Sum of term(i) for i in [0, n).
template <class Term>
DRIVETRAIN_INLINE float sum_lanes(int64_t n, Term term) {
  float lanes[kLanes] = {};
  for_lanes(n, [&](int64_t i, int64_t lane) { lanes[lane] += term(i); });
  return fold_lanes(lanes);
}

}  // namespace drivetrain::kernels
