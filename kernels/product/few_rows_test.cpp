// Products with few rows against sums in float64.
#include "kernels/product/few_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/common/narrow.h"

namespace drivetrain::kernels {
namespace {

template <class T>
std::vector<T> numbers(int64_t n, int seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<T> x(static_cast<size_t>(n));
  for (T& value : x) value = narrowed<T>(normal(engine));
  return x;
}

template <class T>
struct FewRows {
  FewRows(int64_t m, int64_t n, int64_t k, int64_t stride, bool biased)
      : a(numbers<T>(m * k, 1)), b(numbers<T>(n * stride, 2)), bias(numbers<T>(n, 3)), c(static_cast<size_t>(m * n)) {
    op.a = a.data(), op.b = b.data(), op.b_stride = stride, op.bias = biased ? bias.data() : nullptr, op.c = c.data();
    op.m = m, op.n = n, op.k = k;
    op.dtype = std::is_same_v<T, float> ? Dtype::f32 : std::is_same_v<T, Bf16> ? Dtype::bf16 : Dtype::f16;
  }

  void run() { few_rows_product_cpu(op, 0, op.n); }

  // Sums in float32, rounded once to T.
  void expect_product() const {
    const double rounding = std::is_same_v<T, float> ? 0 : std::is_same_v<T, Bf16> ? 0x1p-8 : 0x1p-11;
    for (int64_t i = 0; i < op.m; ++i)
      for (int64_t j = 0; j < op.n; ++j) {
        double sum = op.bias ? widened(bias[static_cast<size_t>(j)]) : 0, size = std::abs(sum);
        for (int64_t k = 0; k < op.k; ++k) {
          const double term = static_cast<double>(widened(a[static_cast<size_t>(i * op.k + k)])) *
                              widened(b[static_cast<size_t>(j * op.b_stride + k)]);
          sum += term, size += std::abs(term);
        }
        EXPECT_NEAR(widened(c[static_cast<size_t>(i * op.n + j)]), sum, 1e-6 * size + rounding * std::abs(sum))
            << op.m << " x " << op.n << " x " << op.k << ", element " << i << ", " << j;
      }
  }

  std::vector<T> a, b, bias, c;
  FewRowsProduct op;
};

template <class T>
void check_shapes() {
  for (const int64_t k : {1, 31, 32, 64, 100, 768})
    for (const int64_t m : {int64_t{1}, int64_t{2}, kFewRows})
      for (const bool biased : {false, true}) {
        FewRows<T> problem(m, 9, k, k + (biased ? 5 : 0), biased);
        problem.run();
        problem.expect_product();
      }
}

TEST(FewRowsProduct, is_the_product_in_float32) { check_shapes<float>(); }
TEST(FewRowsProduct, is_the_product_in_bfloat16) { check_shapes<Bf16>(); }
TEST(FewRowsProduct, is_the_product_in_float16) { check_shapes<F16>(); }

TEST(FewRowsProduct, a_row_has_the_same_bits_alone_and_in_parts) {
  FewRows<float> together(5, 40, 99, 99, true);
  together.run();
  FewRows<float> alone(5, 40, 99, 99, true);
  for (int64_t i = 0; i < 5; ++i) {
    FewRowsProduct row = alone.op;
    row.a = alone.a.data() + i * 99, row.c = alone.c.data() + i * 40, row.m = 1;
    few_rows_product_cpu(row, 0, 13);
    few_rows_product_cpu(row, 13, 40);
  }
  EXPECT_EQ(together.c, alone.c);
}

}  // namespace
}  // namespace drivetrain::kernels
