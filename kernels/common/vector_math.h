// Elementary functions in float32 for the loops of kernels: straight lines of multiply-adds that become vector code.
// Each is written as the one fused operation it is, so every vector width, a loop's tail and a build without vectors
// give the same bits; a CPU without the instruction (before 2013) gets it from libm, slowly. Errors are measured in
// common/vector_math_test.cpp.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/common/vector_clones.h"

namespace drivetrain::kernels {

inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kRoundExponent =
    12583039.0F;  // 1.5 * 2^23 + 127: adding it leaves n and an exponent's bias below

// a b + c, rounded once.
DRIVETRAIN_INLINE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// The smaller and the larger; NaN in x stays NaN.
DRIVETRAIN_INLINE float at_most(float x, float bound) { return x > bound ? bound : x; }
DRIVETRAIN_INLINE float at_least(float x, float bound) { return x < bound ? bound : x; }

// 2^n for the n that adding kRoundExponent left in the low bits.
DRIVETRAIN_INLINE float power_of_two(float shifted) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

// e^x within 1 ulp: 0 below -87, infinite above 88. Source: Cody and Waite 1980, "Software manual for the elementary
// functions": x = n ln 2 + r, e^x = 2^n e^r. The polynomial was fitted at Chebyshev nodes, relative error 1e-8.
DRIVETRAIN_INLINE float exp(float x) {
  const float held = at_most(at_least(x, -87.0F), 88.0F);
  const float shifted = multiply_add(held, kLog2E, kRoundExponent);
  const float n = shifted - kRoundExponent;
  float r = multiply_add(n, -0.693359375F, held);  // ln 2 in two parts
  r = multiply_add(n, 2.12194440e-4F, r);
  float p = 1.392621347e-3F;
  p = multiply_add(p, r, 8.363202972e-3F);
  p = multiply_add(p, r, 4.166655444e-2F);
  p = multiply_add(p, r, 0.1666657685F);
  p = multiply_add(p, r, 0.5F);
  p = multiply_add(p, r, 1.0F);
  p = multiply_add(p, r, 1.0F);
  const float value = x < -87.0F ? 0.0F : p * power_of_two(shifted);
  return x > 88.0F ? __builtin_inff() : value;
}

// 2^t for t in [-126, 127], within 1 ulp. Fitted as above, relative error 5e-9.
DRIVETRAIN_INLINE float exp2_in_range(float t) {
  const float shifted = t + kRoundExponent;
  const float f = t - (shifted - kRoundExponent);
  float p = 1.545318283e-4F;
  p = multiply_add(p, f, 1.339088633e-3F);
  p = multiply_add(p, f, 9.61808252e-3F);
  p = multiply_add(p, f, 5.550357071e-2F);
  p = multiply_add(p, f, 0.2402265076F);
  p = multiply_add(p, f, 0.693147188F);
  p = multiply_add(p, f, 1.0F);
  return p * power_of_two(shifted);
}

// 2^t, held between 2^-126 and 2^126: 1 / (1 + 2^t) is a sigmoid, and 2^t times that its complement, both finite.
DRIVETRAIN_INLINE float exp2_held(float t) { return exp2_in_range(at_most(at_least(t, -126.0F), 126.0F)); }

// The normal distribution function within 1e-7. The smaller tail is 2^Q(|x|), Q fitted to its logarithm on [0, 5] with
// the error of x Phi(x) as the weight and Q(0) = -1 held; Q falls beyond, so that the tail ends as 2^-126.
DRIVETRAIN_INLINE float normal_cumulative(float x) {
  const float size = __builtin_fabsf(x);
  float q = -1.78765144533e-6F;
  q = multiply_add(q, size, 2.76231941157e-5F);
  q = multiply_add(q, size, -1.34566309974e-4F);
  q = multiply_add(q, size, -2.50266796104e-4F);
  q = multiply_add(q, size, 7.19529602609e-3F);
  q = multiply_add(q, size, -5.2575329348e-2F);
  q = multiply_add(q, size, -0.459186455806F);
  q = multiply_add(q, size, -1.15110716178F);
  q = multiply_add(q, size, -1.0F);
  const float tail = exp2_in_range(at_least(q, -126.0F));
  return x < 0.0F ? tail : 1.0F - tail;
}

// Its density, exp(-x^2 / 2) / sqrt(2 pi).
DRIVETRAIN_INLINE float normal_density(float x) {
  return 0.398942280F * exp2_in_range(at_least(-0.5F * kLog2E * x * x, -126.0F));
}

}  // namespace drivetrain::kernels
