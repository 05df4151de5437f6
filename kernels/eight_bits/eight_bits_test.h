// What eight bits mean, and what a cast to them gives, by definition: for the tests of whatever casts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace drivetrain::kernels::eight_bits_test {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline double largest(bool e5m2) { return e5m2 ? 57344 : 448; }

// Sign, exponent with a bias, fraction; e5m2 as IEEE 754 has it, e4m3 without infinities.
inline double value_of(uint8_t bits, bool e5m2) {
  const int fraction_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  const int exponent = (bits & 0x7f) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  if (e5m2 ? exponent == 31 : (bits & 0x7f) == 0x7f) return kNan;  // infinities are never written
  const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                    : std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  return bits & 0x80 ? -size : size;
}

// The nearest number of the type to x, of two the one with even bits.
inline double nearest(double x, bool e5m2) {
  if (std::isnan(x)) return x;
  x = std::copysign(std::min(std::abs(x), largest(e5m2)), x);
  double best = 0;
  int best_bits = 0;
  for (int bits = 0; bits < 0x80; ++bits) {
    const double value = value_of(static_cast<uint8_t>(bits), e5m2);
    if (std::isnan(value)) continue;
    const double farther = std::abs(std::abs(x) - value) - std::abs(std::abs(x) - best);
    if (farther < 0 || (farther == 0 && best_bits % 2 != 0)) best = value, best_bits = bits;
  }
  return std::copysign(best, x);
}

// To e4m3 with scales of blocks of `tall` rows and 128 columns.
struct BlockCast {
  std::vector<double> values;    // [n, k], as the type has them
  std::vector<double> inverses;  // [blocks of rows, blocks of columns]
};
inline BlockCast cast_by_definition(const std::vector<double>& x, int64_t n, int64_t k, int64_t tall) {
  constexpr int64_t kWide = 128;
  BlockCast cast;
  cast.values.resize(x.size());
  for (int64_t row = 0; row < n; row += tall)
    for (int64_t column = 0; column < k; column += kWide) {
      const auto each = [&](const auto& body) {
        for (int64_t i = row; i < std::min(n, row + tall); ++i)
          for (int64_t j = column; j < std::min(k, column + kWide); ++j) body(static_cast<size_t>(i * k + j));
      };
      double most = 0;
      bool finite = true;
      each([&](size_t i) { most = std::max(most, std::abs(x[i])), finite = finite && std::isfinite(x[i]); });
      int exponent = 126;
      while (finite && std::ldexp(most, exponent) > largest(false)) --exponent;
      const double scale = !finite ? kNan : most > 0 ? std::ldexp(1, exponent) : 1;
      each([&](size_t i) { cast.values[i] = nearest(x[i] * scale, false); });
      cast.inverses.push_back(1 / scale);
    }
  return cast;
}

// NaN is like NaN, and 0 like 0 of the same sign.
inline bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

inline void expect_values(const std::vector<uint8_t>& found, const std::vector<double>& wanted, bool e5m2,
                          const char* what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    const double value = value_of(found[i], e5m2);
    ASSERT_TRUE(same(value, wanted[i])) << what << "[" << i << "]: found " << value << ", wanted " << wanted[i];
  }
}

}  // namespace drivetrain::kernels::eight_bits_test
