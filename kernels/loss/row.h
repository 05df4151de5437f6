// What cross entropy on the CPU does with a row of logits. Source files of kernels/loss include it, each for itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/lanes.h"
#include "kernels/common/narrow.h"
#include "kernels/common/vector_math.h"

namespace drivetrain::kernels {
namespace {

// Exponentials of so many columns are added in float32, the blocks' sums in float64.
constexpr int64_t kBlock = 2048;

DRIVETRAIN_INLINE float larger(float a, float b) { return a > b ? a : b; }

template <class T>
DRIVETRAIN_INLINE float maximum_in(const T* x, int64_t n) {
  float lanes[4 * kLanes];
  for (float& lane : lanes) lane = widened(x[0]);
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int64_t j = 0; j < 4 * kLanes; ++j) lanes[j] = larger(widened(x[i + j]), lanes[j]);
  }
  for (; i < n; ++i) lanes[0] = larger(widened(x[i]), lanes[0]);
  for (int64_t j = 1; j < 4 * kLanes; ++j) lanes[0] = larger(lanes[j], lanes[0]);
  return lanes[0];
}

// NaN is passed over here; it comes back through the sum.
DRIVETRAIN_VECTOR_CLONES float maximum(const void* x, int64_t n, Dtype dtype) {
  float most = 0;
  with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) { most = maximum_in(static_cast<const T*>(x), n); });
  return most;
}

// e^x for x <= 0 or NaN. Its relative error, 6e-8 |x|, is what the rounding of logits so far apart brings anyway.
DRIVETRAIN_INLINE float exp_below(float x) {
  const float t = x * kLog2E;
  const float value = exp2_in_range(t);
  return t < -126.0F ? 0.0F : value;
}

// Sum of e^(x - top) over [first, first + n).
DRIVETRAIN_VECTOR_CLONES float sum_of_exponentials(const void* row, int64_t first, int64_t n, float top, Dtype dtype) {
  float sum = 0;
  with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) {
        const T* const x = static_cast<const T*>(row) + first;
        sum = sum_lanes(n, [=](int64_t i) { return exp_below(widened(x[i]) - top); });
      });
  return sum;
}

template <class T>
DRIVETRAIN_INLINE void share_in(T* x, int64_t n, float top, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] = narrowed<T>(exp_below(widened(x[i]) - top) * factor);
}

// x := e^(x - top) factor
DRIVETRAIN_VECTOR_CLONES void share_of_exponentials(void* x, int64_t n, float top, float factor, Dtype dtype) {
  with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) { share_in(static_cast<T*>(x), n, top, factor); });
}

// tanh within 2e-7: near 0 a series, for the difference from 1 has no digits there.
DRIVETRAIN_INLINE float tanh_of(float x) {
  const float square = x * x;
  float p = 2.18694886e-2F;
  p = multiply_add(p, square, -5.39682540e-2F);
  p = multiply_add(p, square, 0.133333333F);
  p = multiply_add(p, square, -0.333333333F);
  const float near = multiply_add(x * square, p, x);
  const float far = 1.0F - 2.0F / (1.0F + exp2_held(2.0F * kLog2E * x));
  return square < 0.0625F ? near : far;
}

// What becomes of a number in the matrix on its way to the softmax.
struct LogitMap {
  float scale, softcap;  // softcap 0: none

  bool is_identity() const { return scale == 1.0F && softcap == 0.0F; }
  template <bool kCapped>
  DRIVETRAIN_INLINE float value(float x) const {
    return kCapped ? softcap * tanh_of(x * scale / softcap) : x * scale;
  }
  // The slope at the place whose value is `logit`.
  template <bool kCapped>
  DRIVETRAIN_INLINE float slope(float logit) const {
    const float part = logit / softcap;
    return kCapped ? scale * multiply_add(-part, part, 1.0F) : scale;
  }
  float operator()(float x) const { return softcap > 0.0F ? value<true>(x) : value<false>(x); }
  float slope_at(float logit) const { return softcap > 0.0F ? slope<true>(logit) : slope<false>(logit); }
};

template <bool kCapped, class T>
DRIVETRAIN_INLINE float mapped_sum_in(const T* x, int64_t n, float top, LogitMap map) {
  return sum_lanes(n, [=](int64_t i) { return exp_below(map.value<kCapped>(widened(x[i])) - top); });
}

// sum_of_exponentials of the mapped row.
DRIVETRAIN_VECTOR_CLONES float mapped_sum_of_exponentials(const void* row, int64_t first, int64_t n, float top,
                                                          LogitMap map, Dtype dtype) {
  float sum = 0;
  with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) {
        const T* const x = static_cast<const T*>(row) + first;
        sum = map.softcap > 0.0F ? mapped_sum_in<true>(x, n, top, map) : mapped_sum_in<false>(x, n, top, map);
      });
  return sum;
}

template <bool kCapped, class T>
DRIVETRAIN_INLINE void mapped_share_in(T* x, int64_t n, float top, float factor, LogitMap map) {
  for (int64_t i = 0; i < n; ++i) {
    const float logit = map.value<kCapped>(widened(x[i]));
    x[i] = narrowed<T>(exp_below(logit - top) * factor * map.slope<kCapped>(logit));
  }
}

// x := e^(logit - top) factor slope
DRIVETRAIN_VECTOR_CLONES void mapped_share_of_exponentials(void* row, int64_t n, float top, float factor, LogitMap map,
                                                           Dtype dtype) {
  with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) {
        T* const x = static_cast<T*>(row);
        map.softcap > 0.0F ? mapped_share_in<true>(x, n, top, factor, map)
                           : mapped_share_in<false>(x, n, top, factor, map);
      });
}

inline float element(const void* row, int64_t i, Dtype dtype) {
  float x = 0;
  with_elements(dtype, [&]<class T>(T) { x = widened(static_cast<const T*>(row)[i]); });
  return x;
}
inline void set_element(void* row, int64_t i, float x, Dtype dtype) {
  with_elements(dtype, [&]<class T>(T) { static_cast<T*>(row)[i] = narrowed<T>(x); });
}
// Elements [begin, end) := 0, which has no bits in any type.
inline void clear(void* row, int64_t begin, int64_t end, Dtype dtype) {
  char* const bytes = static_cast<char*>(row);
  std::fill(bytes + begin * bytes_of_element(dtype), bytes + end * bytes_of_element(dtype), char{0});
}

}  // namespace
}  // namespace drivetrain::kernels
