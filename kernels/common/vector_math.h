// Elementary functions in float32 for the loops of kernels: straight lines of multiply-adds that become vector code. Each is
// written as the one fused operation it is, so every vector width, a loop's tail and a build without vectors give the same bits;
// a CPU without the instruction (before 2013) gets it from libm, slowly. Errors are measured in common/vector_math_test.cpp.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/common/vector_clones.h"

namespace drivetrain::kernels {

// a b + c, rounded once.
DRIVETRAIN_INLINE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// e^x for x in [-87, 88], within 1 ulp. Source: Cody and Waite 1980, "Software manual for the elementary functions":
// x = n ln 2 + r, e^x = 2^n e^r. The polynomial was fitted at Chebyshev nodes, relative error 1e-8.
DRIVETRAIN_INLINE float exp_in_range(float x) {
  constexpr float kRound = 12583039.0F;  // 1.5 * 2^23 + 127: adding it leaves n with an exponent's bias in the low bits
  const float shifted = multiply_add(x, 1.44269504F, kRound);
  const float n = shifted - kRound;
  float r = multiply_add(n, -0.693359375F, x);  // ln 2 in two parts
  r = multiply_add(n, 2.12194440e-4F, r);
  float p = 1.392621347e-3F;
  p = multiply_add(p, r, 8.363202972e-3F);
  p = multiply_add(p, r, 4.166655444e-2F);
  p = multiply_add(p, r, 0.1666657685F);
  p = multiply_add(p, r, 0.5F);
  p = multiply_add(p, r, 1.0F);
  p = multiply_add(p, r, 1.0F);
  return p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

// The smaller and the larger; NaN in x stays NaN.
DRIVETRAIN_INLINE float at_most(float x, float bound) { return x > bound ? bound : x; }
DRIVETRAIN_INLINE float at_least(float x, float bound) { return x < bound ? bound : x; }

// e^x for any x: 0 below -87, infinite above 88.
DRIVETRAIN_INLINE float exp(float x) {
  const float value = exp_in_range(at_most(at_least(x, -87.0F), 88.0F));
  const float floored = x < -87.0F ? 0.0F : value;
  return x > 88.0F ? __builtin_inff() : floored;
}

// e^-x as far as sigmoids need it, held finite: 1 / (1 + e^-x) is sigmoid(x), and e^-x times that 1 - sigmoid(x).
DRIVETRAIN_INLINE float exp_of_minus(float x) { return exp_in_range(at_most(at_least(-x, -87.0F), 87.0F)); }

// The normal distribution at x and its density. Both tails keep their leading digits.
struct Normal {
  float cumulative, density;
};

// Source: the form of Press et al., "Numerical recipes", 6.2.2 (erfcc): the tail is exp(-x^2 / 2) t P(t), t = 1 / (1 + a |x|).
// P was fitted for a = 0.27 at Chebyshev nodes of |x| < 13.2, relative error 3e-8.
DRIVETRAIN_INLINE Normal normal(float x) {
  const float t = 1.0F / multiply_add(0.27F, __builtin_fabsf(x), 1.0F);
  float p = 0.0289069805430F;
  p = multiply_add(p, t, -0.126257857299F);
  p = multiply_add(p, t, 0.169385949186F);
  p = multiply_add(p, t, -0.0688292010442F);
  p = multiply_add(p, t, 0.107608655271F);
  p = multiply_add(p, t, 0.0721262121729F);
  p = multiply_add(p, t, 0.101793602840F);
  p = multiply_add(p, t, 0.107545158588F);
  p = multiply_add(p, t, 0.107720510093F);
  const float bell = exp_in_range(at_least(-0.5F * x * x, -87.0F));
  const float tail = bell * (t * p);
  return {x < 0.0F ? tail : 1.0F - tail, bell * 0.398942280F};
}

}  // namespace drivetrain::kernels
