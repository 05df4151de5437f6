// The elementary functions of kernels against libm in float64, and that vector width does not change a bit of them.
#include "kernels/common/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/lanes.h"

namespace drivetrain::kernels {
namespace {

std::vector<float> grid(double first, double last, int64_t count) {
  std::vector<float> x(count);
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(first + (last - first) * i / (count - 1));
  return x;
}

double ulp(double value) { return std::ldexp(1.0, std::max(-149, std::ilogb(value) - 23)); }

#define LOOP(NAME, FUNCTION)                                                             \
  DRIVETRAIN_VECTOR_CLONES void NAME##_in_vectors(const float* x, float* y, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) y[i] = FUNCTION(x[i]);                               \
  }                                                                                      \
  __attribute__((noinline)) float NAME##_alone(float x) { return FUNCTION(x); }
LOOP(exp, exp)
LOOP(exp2, exp2_held)
LOOP(cumulative, normal_cumulative)
LOOP(density, normal_density)
#undef LOOP

using Vectors = void (*)(const float*, float*, int64_t);
using Alone = float (*)(float);

std::vector<float> apply(Vectors function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  function(x.data(), y.data(), static_cast<int64_t>(x.size()));
  return y;
}

void same_bits(Vectors vectors, Alone alone, double first, double last) {
  const std::vector<float> x = grid(first, last, 20'011);  // odd: the last vector is ragged
  const std::vector<float> y = apply(vectors, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const float expected = alone(x[i]);
    ASSERT_EQ(std::memcmp(&expected, &y[i], sizeof expected), 0) << "at " << x[i];
  }
}

TEST(VectorMath, vectors_and_single_numbers_have_the_same_bits) {
  same_bits(exp_in_vectors, exp_alone, -95, 95);
  same_bits(exp2_in_vectors, exp2_alone, -140, 140);
  same_bits(cumulative_in_vectors, cumulative_alone, -20, 20);
  same_bits(density_in_vectors, density_alone, -20, 20);
}

TEST(VectorMath, exponentials_are_within_one_ulp) {
  const std::vector<float> x = grid(-87, 88, 400'001), y = apply(exp_in_vectors, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(static_cast<double>(x[i]));
    ASSERT_LE(std::abs(y[i] - expected), 1.0 * ulp(expected)) << "exp at " << x[i];
  }
  const std::vector<float> t = grid(-126, 126, 400'001), z = apply(exp2_in_vectors, t);
  for (size_t i = 0; i < t.size(); ++i) {
    const double expected = std::exp2(static_cast<double>(t[i]));
    ASSERT_LE(std::abs(z[i] - expected), 1.0 * ulp(expected)) << "exp2 at " << t[i];
  }
}

TEST(VectorMath, exponential_of_a_masked_number_is_zero_and_of_nan_is_nan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> y = apply(exp_in_vectors, {-infinity, -200, 0, 100, infinity, std::nanf("")});
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_EQ(y[1], 0.0F);
  EXPECT_EQ(y[2], 1.0F);
  EXPECT_EQ(y[3], infinity);
  EXPECT_EQ(y[4], infinity);
  EXPECT_TRUE(std::isnan(y[5]));
}

// The fit costs 3e-8, rounding of Q, of the tail and of 1 - tail the rest.
TEST(VectorMath, normal_distribution_is_within_1e_7) {
  const std::vector<float> x = grid(-30, 30, 400'001);
  const std::vector<float> phi = apply(cumulative_in_vectors, x), density = apply(density_in_vectors, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = 0.5 * std::erfc(-static_cast<double>(x[i]) * std::sqrt(0.5));
    ASSERT_NEAR(phi[i], expected, 1e-7) << "at " << x[i];
    ASSERT_NEAR(density[i], std::exp(-0.5 * x[i] * static_cast<double>(x[i])) * 0.3989422804014327, 5e-8) << x[i];
  }
}

TEST(Lanes, sum_of_any_length_is_the_sum) {
  for (int64_t n : {0, 1, 31, 32, 33, 64, 1000}) {
    const float sum = sum_lanes(n, [](int64_t i) { return static_cast<float>(i); });
    EXPECT_EQ(sum, static_cast<float>(n * (n - 1) / 2)) << n;  // whole numbers below 2^24: exact
  }
}

}  // namespace
}  // namespace drivetrain::kernels
