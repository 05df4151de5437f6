// Bits of bfloat16 and float16 for loops on the CPU: rounding to nearest, ties to even, as straight-line code that
// becomes vector code. NaN stays NaN, what is too large becomes infinite, float16 keeps its subnormals.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/common/kernel.h"
#include "kernels/common/vector_clones.h"

namespace drivetrain::kernels {

// A bfloat16 in memory: the upper half of a float32.
struct Bf16 {
  uint16_t bits;
};

// A float16 in memory.
struct F16 {
  uint16_t bits;
};

DRIVETRAIN_INLINE float widened(float x) { return x; }
DRIVETRAIN_INLINE float widened(Bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Exact. Normal numbers, infinity and NaN keep their bits below an exponent that a multiplication puts right;
// subnormals stand in the mantissa of 0.5 and lose it by a subtraction.
// Source: M. Dukhan's FP16 library, fp16_ieee_to_fp32_value.
DRIVETRAIN_INLINE float widened(F16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16, doubled = bits + bits;
  const float normal = std::bit_cast<float>((doubled >> 4) + 0x70000000U) * 0x1.0p-112F;
  const float subnormal = std::bit_cast<float>((doubled >> 17) | 0x3F000000U) - 0.5F;
  const uint32_t size = std::bit_cast<uint32_t>(doubled < 0x08000000U ? subnormal : normal);
  return std::bit_cast<float>((bits & 0x80000000U) | size);
}

DRIVETRAIN_INLINE uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC0U : rounded);
}

// The float32 adder rounds: next to a number 2^13 times as large as x's last float16 bit, the lower bits fall away.
// Source: M. Dukhan's FP16 library, fp16_ieee_from_fp32_value.
DRIVETRAIN_INLINE uint16_t to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), doubled = bits + bits;
  const float size = std::bit_cast<float>(bits & 0x7FFFFFFFU);
  const float clamped = (size * 0x1.0p+112F) * 0x1.0p-110F;  // infinite from 2^16 on
  const uint32_t exponent = doubled & 0xFF000000U;
  const uint32_t bias = exponent < 0x71000000U ? 0x71000000U : exponent;
  const uint32_t sum = std::bit_cast<uint32_t>(std::bit_cast<float>((bias >> 1) + 0x07800000U) + clamped);
  const uint32_t rounded = ((sum >> 13) & 0x7C00U) + (sum & 0x0FFFU);
  return static_cast<uint16_t>(((bits & 0x80000000U) >> 16) | (doubled > 0xFF000000U ? 0x7E00U : rounded));
}

// x as an element of memory: rounded once where that is narrower.
template <class T>
DRIVETRAIN_INLINE T narrowed(float x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return {to_bf16(x)};
  else if constexpr (std::is_same_v<T, F16>)
    return {to_f16(x)};
  else
    return x;
}

// Calls f(T()) with the type of elements that `dtype` names, inlined: in a function with clones this is the loop's.
template <class F>
DRIVETRAIN_INLINE void with_elements(Dtype dtype, const F& f) {
  if (dtype == Dtype::bf16)
    f(Bf16());
  else if (dtype == Dtype::f16)
    f(F16());
  else
    f(float());
}

constexpr int64_t bytes_of_element(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }

// The row of a matrix of `columns` elements a row; null where there is no matrix.
inline const void* row_of(const void* matrix, int64_t row, int64_t columns, Dtype dtype) {
  return matrix ? static_cast<const char*>(matrix) + row * columns * bytes_of_element(dtype) : nullptr;
}
inline void* row_of(void* matrix, int64_t row, int64_t columns, Dtype dtype) {
  return matrix ? static_cast<char*>(matrix) + row * columns * bytes_of_element(dtype) : nullptr;
}

// to[i] := round(x[i]); round is to_bf16 or to_f16.
template <class Round>
DRIVETRAIN_INLINE void narrow(const float* __restrict x, uint16_t* __restrict to, int64_t n, const Round& round) {
  for (int64_t i = 0; i < n; ++i) to[i] = round(x[i]);
}

// to[i] := x[i] + bias[i] in float32, of elements of `dtype`; bias null: none.
DRIVETRAIN_INLINE void widen(Dtype dtype, const void* any_x, const void* any_bias, float* to, int64_t n) {
  with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) {
        const T *x = static_cast<const T*>(any_x), *bias = static_cast<const T*>(any_bias);
        if (bias) {
          for (int64_t i = 0; i < n; ++i) to[i] = widened(x[i]) + widened(bias[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) to[i] = widened(x[i]);
        }
      });
}

// to[i] := x[i] as an element of 16 bits.
DRIVETRAIN_INLINE void narrow(Dtype dtype, const float* x, void* to, int64_t n) {
  if (dtype == Dtype::bf16)
    narrow(x, static_cast<uint16_t*>(to), n, to_bf16);
  else
    narrow(x, static_cast<uint16_t*>(to), n, to_f16);
}

}  // namespace drivetrain::kernels
