// What the tests of precision/fp8 share: random numbers, and the definition of 8 bits and of their products in float64.
#pragma once

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <drivetrain/random.h>

#include "cast.h"

namespace drivetrain::test {

using namespace fp8;

inline constexpr at::ScalarType kTypes[] = {at::kFloat8_e4m3fn, at::kFloat8_e5m2};

inline at::Tensor numbers(std::vector<int64_t> shape, uint64_t seed, double std = 1) {
  at::Tensor out = at::empty(shape);
  fill_normal(out, seed, "numbers", 0, std);
  return out;
}

inline at::Tensor scalar(double value) { return at::full({}, value, at::TensorOptions(at::kFloat)); }

// Every finite number of the type that is not negative, ascending: by sign, exponent and mantissa, as IEEE 754 has it.
inline std::vector<double> all_numbers(at::ScalarType type) {
  const int mantissa_bits = type == at::kFloat8_e4m3fn ? 3 : 2, bias = type == at::kFloat8_e4m3fn ? 7 : 15;
  std::vector<double> list;
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    if (value <= largest(type)) list.push_back(value);
  }
  return list;
}

// To nearest, ties to the even code; what is too large becomes the largest.
inline double rounded(double x, const std::vector<double>& list) {
  const double size = std::abs(x);
  const auto above = std::lower_bound(list.begin(), list.end(), size);
  if (above == list.end()) return std::copysign(list.back(), x);
  if (above == list.begin() || *above == size) return std::copysign(*above, x);
  const double low = *(above - 1), high = *above;
  const bool low_is_even = (above - list.begin() - 1) % 2 == 0;
  const bool up = size - low > high - size || (size - low == high - size && !low_is_even);
  return std::copysign(up ? high : low, x);
}

// Of the rounded operands in float64, with what float32 sums and one rounding of the result may be off.
inline void expect_product(const at::Tensor& found, const Scaled& a, const Scaled& b, const at::Tensor& bias,
                           double rounding) {
  const at::Tensor x = a.values.to(at::kDouble) * a.inverse.to(at::kDouble),
                   w = b.values.to(at::kDouble) * b.inverse.to(at::kDouble);
  at::Tensor wanted = x.matmul(w.t());
  const at::Tensor sizes = x.abs().matmul(w.abs().t());
  if (bias.defined()) wanted = wanted + bias.to(at::kDouble);
  const double sums = static_cast<double>(x.size(1)) * 0x1p-24 + 4 * 0x1p-24;  // and the scales' own roundings
  const at::Tensor allowed = sizes * sums + wanted.abs() * rounding + 1e-30;
  EXPECT_TRUE((found.to(at::kDouble) - wanted).abs().le(allowed).all().item<bool>());
}

}  // namespace drivetrain::test
