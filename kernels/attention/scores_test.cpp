// Softmax of a block of scores, and its gradient, against float64.
#include "kernels/attention/scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
namespace {

using namespace test;

struct Case {
  int64_t rows, columns, begin, end;
  double softcap;
};
// All seen; a triangle; a band; rows that see nothing at either end; short and long rows; caps that bend and that do
// not.
constexpr Case kCases[] = {{1, 1, -1, 1, 0},      {3, 70, -3, 70, 0},     {64, 64, -64, 1, 0},
                           {64, 575, -511, 1, 0}, {40, 130, 0, 50, 0},    {20, 30, -25, -5, 0},
                           {20, 30, 25, 40, 0},   {8, 200, -8, 200, 1.5}, {33, 100, -9, 3, 40}};

template <class T>
std::vector<T> numbers(int64_t count, uint64_t seed) {
  const std::vector<float> x = normal_numbers(count, seed);
  std::vector<T> list;
  for (const float value : x) list.push_back(static_cast<T>(2 * value));
  return list;
}

template <class T>
void compare(const Case& c, double tolerance) {
  const auto given = numbers<T>(c.rows * c.columns, 1), dp = numbers<T>(c.rows * c.columns, 2);
  const auto delta = numbers<T>(c.rows, 3);
  std::vector<T> p = given, p_again = given, ds = dp, lse(static_cast<size_t>(c.rows)), sums = lse;
  SoftmaxRows<T> forward;
  forward.rows = c.rows, forward.columns = c.columns, forward.begin = c.begin, forward.end = c.end;
  forward.softcap = c.softcap;
  SoftmaxGradRows<T> backward;
  static_cast<ScoreRows<T>&>(backward) = forward;
  forward.scores = p.data(), forward.lse = lse.data(), forward.sums = sums.data();
  softmax_rows_cpu(forward);
  std::vector<T> given_lse = lse;
  for (T& x : given_lse) x = x == -std::numeric_limits<T>::infinity() ? -x : x;
  backward.scores = p_again.data(), backward.gradients = ds.data();
  backward.lse = given_lse.data(), backward.delta = delta.data();
  softmax_grad_rows_cpu(backward);
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto capped = [&](size_t at) {
      const double s = static_cast<double>(given[at]);
      return c.softcap > 0 ? c.softcap * std::tanh(s / c.softcap) : s;
    };
    const auto seen = [&](int64_t column) { return column >= c.begin + r && column < c.end + r; };
    const auto at = [&](int64_t column) { return static_cast<size_t>(r * c.columns + column); };
    const auto row = static_cast<size_t>(r);
    double sum = 0;
    for (int64_t i = 0; i < c.columns; ++i) sum += seen(i) ? std::exp(capped(at(i))) : 0;
    if (sum == 0) {
      ASSERT_EQ(lse[row], -std::numeric_limits<T>::infinity());
      ASSERT_EQ(sums[row], 0);
    } else {
      ASSERT_NEAR(lse[row], std::log(sum), tolerance * 4);
    }
    for (int64_t i = 0; i < c.columns; ++i) {
      const double wanted = seen(i) ? std::exp(capped(at(i))) / sum : 0;
      const double slope = c.softcap > 0 ? 1 - std::pow(capped(at(i)) / c.softcap, 2) : 1;
      ASSERT_NEAR(p[at(i)] / (sum == 0 ? 1 : sums[row]), wanted, tolerance) << r << ", " << i;
      ASSERT_NEAR(p_again[at(i)], wanted, tolerance) << r << ", " << i;
      ASSERT_NEAR(ds[at(i)], wanted * static_cast<double>(dp[at(i)] - delta[row]) * slope, tolerance * 8);
    }
  }
}

TEST(AttentionScores, are_the_softmax_of_what_a_row_sees_and_its_gradient) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.columns);
    compare<double>(c, 1e-14);
    compare<float>(c, 2e-6);
  }
}

}  // namespace
}  // namespace drivetrain::kernels
