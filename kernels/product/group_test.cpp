// Products of groups against float64; the same bits for a row alone, in parts and from any place in memory.
#include "kernels/product/group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "kernels/common/narrow.h"
#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
namespace {

using namespace test;

template <class T>
constexpr Dtype kDtype = std::is_same_v<T, float>  ? Dtype::f32
                         : std::is_same_v<T, Bf16> ? Dtype::bf16
                                                   : Dtype::f16;

// Stored rows lie in memory in the order of `order`, further apart than they are long.
template <class T>
struct Matrix {
  Matrix(int64_t rows, int64_t columns, bool stored_transposed, uint64_t seed)
      : transposed(stored_transposed),
        height(transposed ? columns : rows),
        stride((transposed ? rows : columns) + 3),
        order(static_cast<size_t>(height)) {
    for (const float x : normal_numbers(height * stride, seed)) data.push_back(narrowed<T>(x));
    std::iota(order.begin(), order.end(), 0);
  }
  void scatter() {
    for (int64_t i = 0; i < height; ++i) order[size_t(i)] = (i * 7 + 3) % height;
    if (height % 7 == 0) std::iota(order.rbegin(), order.rend(), 0);
    std::vector<T> moved(data.size());
    for (int64_t i = 0; i < height; ++i)
      std::memcpy(static_cast<void*>(moved.data() + order[size_t(i)] * stride), data.data() + i * stride,
                  static_cast<size_t>(stride) * sizeof(T));
    data = moved;
  }
  double at(int64_t i, int64_t j) const {
    const int64_t row = transposed ? j : i, column = transposed ? i : j;
    return widened(data[size_t(order[size_t(row)] * stride + column)]);
  }
  const bool transposed;
  const int64_t height, stride;
  std::vector<int64_t> order;
  std::vector<T> data;
};

std::unique_ptr<void, void (*)(void*)> scratch_of(const GroupProduct& op) {
  const auto bytes = static_cast<size_t>(group_product_scratch_bytes(op) + 63) / 64 * 64;
  return {std::aligned_alloc(64, bytes), std::free};
}

template <class T, class C = T>
struct Problem {
  Problem(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed)
      : a(m, k, a_transposed, 1), b(k, n, b_transposed, 2), c(static_cast<size_t>(m * (n + 8)), narrowed<C>(0.5F)) {
    op.m = m, op.n = n, op.k = k, op.a_transposed = a_transposed, op.b_transposed = b_transposed;
    op.a_stride = a.stride, op.b_stride = b.stride, op.c_stride = n + 8, op.c = c.data();
    op.dtype = kDtype<T>, op.c_dtype = kDtype<C>;
  }
  void scatter() { a.scatter(), b.scatter(), op.a_rows = a.order.data(), op.b_rows = b.order.data(); }
  void run() {
    op.a = a.data.data(), op.b = b.data.data();
    const auto scratch = scratch_of(op);
    group_product_cpu(op, scratch.get());
  }
  double found(int64_t i, int64_t j) const { return widened(c[size_t(i * op.c_stride + j)]); }
  void expect_product() const {
    const double rounding = kDtype<C> == Dtype::f32 ? 0 : kDtype<C> == Dtype::bf16 ? 0x1p-8 : 0x1p-11;
    for (int64_t i = 0; i < op.m; ++i) {
      for (int64_t j = 0; j < op.n; ++j) {
        double sum = op.add ? 0.5 : 0, sizes = 1;
        for (int64_t l = 0; l < op.k; ++l) sum += a.at(i, l) * b.at(l, j), sizes += std::abs(a.at(i, l) * b.at(l, j));
        ASSERT_NEAR(found(i, j), sum, sizes * 1e-6 + rounding * std::abs(sum))
            << op.m << " x " << op.n << " x " << op.k << ", element " << i << ", " << j << ", stored "
            << op.a_transposed << op.b_transposed;
      }
      for (int64_t j = op.n; j < op.c_stride; ++j) ASSERT_EQ(found(i, j), 0.5) << "behind row " << i;
    }
  }
  Matrix<T> a, b;
  std::vector<C> c;
  GroupProduct op;
};

template <class T, class C>
void expect_products(int64_t m, int64_t n, int64_t k) {
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true})
      for (const bool add : {false, true}) {
        Problem<T, C> problem(m, n, k, a_transposed, b_transposed);
        if (add) problem.scatter();
        problem.op.add = add;
        const std::vector<C> before = problem.c;
        for (const bool narrow : {true, false}) {
          if (!narrow && !multiplies_groups_wide()) continue;
          problem.c = before, problem.op.narrow = narrow, problem.op.c = problem.c.data();
          problem.run();
          problem.expect_product();
        }
      }
}

class GroupProducts : public testing::Test {
  void SetUp() override {
    if (!multiplies_groups()) GTEST_SKIP() << "this processor has no AVX2";
  }
};

TEST_F(GroupProducts, are_the_products_in_every_type) {
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                   {5, 16, 7},
                                                                   {6, 17, 40},
                                                                   {13, 33, 257},
                                                                   {64, 48, 300},
                                                                   {200, 20, 9},
                                                                   {40, 300, 5},
                                                                   {300, 35, 260}}) {
    expect_products<float, float>(m, n, k);
    expect_products<Bf16, Bf16>(m, n, k);
    expect_products<Bf16, float>(m, n, k);
    expect_products<F16, F16>(m, n, k);
  }
}

// Blocks that follow each other, of A, of B and of summands.
TEST_F(GroupProducts, larger_than_what_is_packed_at_a_time) {
  expect_products<float, float>(400, 40, 600);
  expect_products<float, float>(60, 40, 3500);
  expect_products<float, float>(1600, 40, 280);
  expect_products<float, float>(300, 600, 257);
  expect_products<float, float>(800, 8, 900);
  expect_products<float, float>(1000, 600, 64);
}

TEST_F(GroupProducts, written_past_the_caches_are_the_same) {
  Problem<float> plain(50, 40, 30, true, false), past(50, 40, 30, true, false);
  const auto aligned = scratch_of(past.op);  // as large as any
  past.op.stream = true, past.op.c = aligned.get();
  plain.run();
  const auto scratch = scratch_of(past.op);
  past.op.a = past.a.data.data(), past.op.b = past.b.data.data();
  group_product_cpu(past.op, scratch.get());
  for (int64_t i = 0; i < 50; ++i)
    EXPECT_EQ(std::memcmp(static_cast<const float*>(past.op.c) + i * past.op.c_stride,
                          plain.c.data() + i * plain.op.c_stride, 40 * sizeof(float)),
              0)
        << "row " << i;
}

TEST_F(GroupProducts, have_the_same_bits_by_both_widths) {
  if (!multiplies_groups_wide()) return;  // both would be the same code
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{13, 33, 700}, {64, 600, 257}, {300, 35, 260}})
    for (const bool b_transposed : {false, true})
      for (const bool add : {false, true}) {
        Problem<float> wide(m, n, k, false, b_transposed), narrow(m, n, k, false, b_transposed);
        wide.op.add = narrow.op.add = add, narrow.op.narrow = true;
        wide.run(), narrow.run();
        EXPECT_EQ(wide.c, narrow.c) << m << " x " << n << " x " << k;
      }
}

TEST_F(GroupProducts, a_row_has_the_same_bits_alone_in_parts_and_from_anywhere) {
  Problem<float> together(70, 90, 700, false, true);
  together.run();
  Problem<float> scattered(70, 90, 700, false, true);
  scattered.scatter();
  scattered.run();
  EXPECT_EQ(scattered.c, together.c);
  Problem<float> alone(70, 90, 700, false, true);
  const auto scratch = scratch_of(alone.op);
  for (int64_t i = 0; i < 70; ++i)
    in_pieces(odd_cuts(90), [&](int64_t begin, int64_t end) {
      GroupProduct part = alone.op;
      part.a = alone.a.data.data() + i * alone.a.stride, part.b = alone.b.data.data() + begin * alone.b.stride;
      part.c = alone.c.data() + i * part.c_stride + begin;
      part.m = 1, part.n = end - begin;
      group_product_cpu(part, scratch.get());
    });
  EXPECT_EQ(alone.c, together.c);
}

}  // namespace
}  // namespace drivetrain::kernels
