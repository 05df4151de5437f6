// Products by 16-bit instructions against float64, and bit by bit whatever way tasks are divided.
#include "kernels/product/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>

#include "kernels/common/narrow.h"
#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
namespace {

using namespace test;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;
Memory memory(int64_t bytes) { return Memory(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))); }

std::vector<uint16_t> rounded(const std::vector<float>& x) {
  std::vector<uint16_t> bits;
  for (const float value : x) bits.push_back(to_bf16(value));
  return bits;
}
double value_of(uint16_t bits) { return widened(Bf16{bits}); }

// A [M, K], B [K, N], each stored either way round, as float32 and rounded.
struct Problem {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  std::vector<float> a, b, bias;
  std::vector<uint16_t> short_a, short_b, short_bias;

  Problem(int64_t M, int64_t N, int64_t K, bool a_stored_as_km, bool b_stored_as_nk)
      : m(M),
        n(N),
        k(K),
        a_transposed(a_stored_as_km),
        b_transposed(b_stored_as_nk),
        a(normal_numbers(M * K, 1)),
        b(normal_numbers(K * N, 2)),
        bias(normal_numbers(N, 3)),
        short_a(rounded(a)),
        short_b(rounded(b)),
        short_bias(rounded(bias)) {}

  Product op(ProductUnit unit, Dtype dtype, Dtype c_dtype) const {
    Product p;
    p.dtype = dtype, p.c_dtype = c_dtype, p.unit = unit;
    p.a = dtype == Dtype::f32 ? static_cast<const void*>(a.data()) : short_a.data();
    p.b = dtype == Dtype::f32 ? static_cast<const void*>(b.data()) : short_b.data();
    p.m = m, p.n = n, p.k = k;
    p.a_transposed = a_transposed, p.a_stride = a_transposed ? m : k;
    p.b_transposed = b_transposed, p.b_stride = b_transposed ? k : n;
    p.c_stride = n;
    return p;
  }
  int64_t of_a(int64_t i, int64_t j) const { return a_transposed ? j * m + i : i * k + j; }
  int64_t of_b(int64_t i, int64_t j) const { return b_transposed ? j * k + i : i * n + j; }

  struct Sum {
    double value = 0, sizes = 0;  // sizes: sum of |a b|
  };
  Sum sum(int64_t i, int64_t j, bool exact) const {
    Sum s;
    for (int64_t l = 0; l < k; ++l) {
      const double x = exact ? static_cast<double>(a[of_a(i, l)]) : value_of(short_a[of_a(i, l)]);
      const double y = exact ? static_cast<double>(b[of_b(l, j)]) : value_of(short_b[of_b(l, j)]);
      s.value += x * y, s.sizes += std::abs(x * y);
    }
    return s;
  }
};

template <class T>
std::vector<T> multiply(Product op, std::vector<T> c, bool in_odd_pieces = false) {
  const Memory packed = memory(product_packed_bytes(op)), scratch = memory(product_scratch_bytes(op));
  op.packed = packed.get(), op.c = c.data();
  const auto pack = [&](int64_t begin, int64_t end) { product_pack(op, begin, end); };
  const auto tasks = [&](int64_t begin, int64_t end) { product_cpu(op, scratch.get(), begin, end); };
  const std::vector<int64_t> all_panels = {0, product_panels(op)}, all_tasks = {0, product_tasks(op)};
  in_pieces(in_odd_pieces ? odd_cuts(product_panels(op)) : all_panels, pack);
  in_pieces(in_odd_pieces ? odd_cuts(product_tasks(op)) : all_tasks, tasks);
  return c;
}
template <class T>
std::vector<T> filled(const Problem& p, T value) {
  return std::vector<T>(static_cast<size_t>(p.m * p.n), value);
}

// Whole tiles and rests of them, more panels than a task has, and K beyond what is packed at a time.
constexpr int64_t kShapes[][3] = {{1, 1, 1},    {32, 32, 32},  {33, 65, 31},   {70, 100, 1100},
                                  {5, 200, 64}, {600, 40, 70}, {129, 131, 257}};

class ProductCpu : public ::testing::TestWithParam<ProductUnit> {
 protected:
  template <class F>
  void for_problems(const F& f) {
    for (const auto& [m, n, k] : kShapes)
      for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true}) f(Problem(m, n, k, a_transposed, b_transposed));
  }
};
// Those that this processor has; on one without any these products are LibTorch's.
std::vector<ProductUnit> units_here() {
  std::vector<ProductUnit> units;
  for (const ProductUnit unit : {ProductUnit::avx512_bf16, ProductUnit::amx})
    if (unit <= product_unit()) units.push_back(unit);
  return units;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProductCpu);
INSTANTIATE_TEST_SUITE_P(Units, ProductCpu, ::testing::ValuesIn(units_here()));

TEST_P(ProductCpu, float32_sums_are_those_of_the_rounded_operands) {
  for_problems([](const Problem& p) {
    Product op = p.op(GetParam(), Dtype::bf16, Dtype::f32);
    const std::vector<float> c = multiply(op, filled(p, std::nanf("")));
    op.add = true;
    const std::vector<float> added = multiply(op, filled(p, 1.5F));
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const Problem::Sum sum = p.sum(i, j, false);
        const size_t at = static_cast<size_t>(i * p.n + j);
        // Each addition rounds once: at most half an ulp of a partial sum, which is no larger than the sum of sizes.
        const double room = kUlp * static_cast<double>(p.k) * sum.sizes / 2;
        ASSERT_NEAR(c[at], sum.value, room) << i << " " << j;
        ASSERT_EQ(added[at], 1.5F + c[at]);
      }
  });
}

TEST_P(ProductCpu, bfloat16_results_are_float32_sums_with_bias_rounded_once) {
  for_problems([](const Problem& p) {
    Product wide = p.op(GetParam(), Dtype::bf16, Dtype::f32), narrow = p.op(GetParam(), Dtype::bf16, Dtype::bf16);
    narrow.bias = p.short_bias.data();
    const std::vector<float> sums = multiply(wide, filled(p, 0.0F));
    const std::vector<uint16_t> c = multiply(narrow, filled(p, uint16_t{0x7FC0}));
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const size_t at = static_cast<size_t>(i * p.n + j);
        ASSERT_EQ(c[at], to_bf16(sums[at] + widened(Bf16{p.short_bias[static_cast<size_t>(j)]})));
      }
  });
}

TEST_P(ProductCpu, who_computes_a_task_and_what_is_packed_before_does_not_change_a_bit) {
  for_problems([](const Problem& p) {
    Product op = p.op(GetParam(), Dtype::bf16, Dtype::f32);
    const std::vector<float> c = multiply(op, filled(p, 0.0F));
    EXPECT_EQ(multiply(op, filled(p, 0.0F), true), c);
    op.shares_a = false;
    EXPECT_EQ(multiply(op, filled(p, 0.0F)), c);
    op.stream = true;
    EXPECT_EQ(multiply(op, filled(p, 0.0F), true), c);
  });
}

TEST_P(ProductCpu, one_thread_that_packs_a_wide_weight_makes_the_same_bits) {
  for (const int64_t rows : {7, 70, 130})  // of which 130 are too many for it
    for (const int64_t summands : {200, 600})
      for (const bool split : {false, true}) {
        const Problem p(rows, 2100, summands, false, false);
        Product op = p.op(GetParam(), split ? Dtype::f32 : Dtype::bf16, Dtype::f32);
        op.split = split;
        const std::vector<float> c = multiply(op, filled(p, 0.0F));
        op.alone = true;
        const bool wide = product_tasks(op) == 2;
        EXPECT_EQ(wide, rows <= 128);
        EXPECT_EQ(multiply(op, filled(p, std::nanf(""))), c);
        EXPECT_EQ(multiply(op, filled(p, std::nanf("")), true), c);
      }
}

TEST_P(ProductCpu, results_that_are_stored_the_other_way_round_are_the_same_bits) {
  for_problems([](const Problem& p) {
    Product wide = p.op(GetParam(), Dtype::bf16, Dtype::f32), narrow = p.op(GetParam(), Dtype::bf16, Dtype::bf16);
    const std::vector<float> sums = multiply(wide, filled(p, 0.0F));
    const std::vector<uint16_t> rounded = multiply(narrow, filled(p, uint16_t{0}));
    wide.c_transposed = narrow.c_transposed = true, wide.c_stride = narrow.c_stride = p.m;
    wide.shares_a = narrow.shares_a = false;
    const std::vector<float> turned = multiply(wide, filled(p, std::nanf("")), true);
    const std::vector<uint16_t> rounded_turned = multiply(narrow, filled(p, uint16_t{0x7FC0}), true);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        ASSERT_EQ(turned[static_cast<size_t>(j * p.m + i)], sums[static_cast<size_t>(i * p.n + j)]);
        ASSERT_EQ(rounded_turned[static_cast<size_t>(j * p.m + i)], rounded[static_cast<size_t>(i * p.n + j)]);
      }
  });
}

TEST_P(ProductCpu, float32_operands_are_rounded_once_or_split_in_two) {
  for_problems([](const Problem& p) {
    Product op = p.op(GetParam(), Dtype::f32, Dtype::f32);
    op.bias = p.bias.data();
    const std::vector<float> once = multiply(op, filled(p, 0.0F));
    op.split = true;
    const std::vector<float> split = multiply(op, filled(p, 0.0F));
    Product rounded_before = p.op(GetParam(), Dtype::bf16, Dtype::f32);
    rounded_before.bias = p.bias.data();
    EXPECT_EQ(once, multiply(rounded_before, filled(p, 0.0F)));
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const Problem::Sum sum = p.sum(i, j, true);
        // Of each factor 2^-17 is left out, and the product of the two lower parts, 2^-18; sums are rounded besides.
        const double room = (3 * 0x1.0p-17 + kUlp * static_cast<double>(p.k)) * sum.sizes + kUlp * 8;
        ASSERT_NEAR(split[static_cast<size_t>(i * p.n + j)],
                    sum.value + static_cast<double>(p.bias[static_cast<size_t>(j)]), room);
      }
  });
}

TEST_P(ProductCpu, numbers_that_are_not_finite_reach_their_rows_only) {
  Problem p(40, 36, 50, false, false);
  p.short_a[p.of_a(3, 7)] = 0x7FC0;  // not a number
  const std::vector<float> c = multiply(p.op(GetParam(), Dtype::bf16, Dtype::f32), filled(p, 0.0F));
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) EXPECT_EQ(std::isnan(c[static_cast<size_t>(i * p.n + j)]), i == 3);
}

}  // namespace
}  // namespace drivetrain::kernels
