// Tiled products against float64, and bit by bit whatever way tasks and summands are divided.
#include "kernels/product/tiled.h"

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
Memory memory(int64_t bytes) { return Memory(std::aligned_alloc(64, static_cast<size_t>((bytes + 64) / 64 * 64))); }

double value_of(uint16_t bits) { return widened(Bf16{bits}); }

struct Matrix {
  int64_t rows, columns;
  std::vector<uint16_t> bits;
  double at(int64_t i, int64_t j) const { return value_of(bits[static_cast<size_t>(i * columns + j)]); }
};
Matrix matrix(int64_t rows, int64_t columns, uint64_t seed) {
  Matrix m{rows, columns, {}};
  for (const float x : normal_numbers(rows * columns, seed)) m.bits.push_back(to_bf16(x));
  return m;
}
Matrix transposed(const Matrix& m) {
  Matrix t{m.columns, m.rows, {}};
  for (int64_t j = 0; j < m.columns; ++j)
    for (int64_t i = 0; i < m.rows; ++i) t.bits.push_back(m.bits[static_cast<size_t>(i * m.columns + j)]);
  return t;
}
// The same numbers on both sides of the diagonal.
Matrix symmetric(int64_t size, uint64_t seed) {
  Matrix m = matrix(size, size, seed);
  for (int64_t i = 0; i < size; ++i)
    for (int64_t j = 0; j < i; ++j)
      m.bits[static_cast<size_t>(i * size + j)] = m.bits[static_cast<size_t>(j * size + i)];
  return m;
}

Memory tiled(const Matrix& m, bool stored_transposed = false, float factor = 1) {
  Memory tiles = memory(tiled_bytes(m.rows, m.columns));
  const Matrix stored = stored_transposed ? transposed(m) : m;
  TiledPack op;
  op.x = stored.bits.data(), op.stride = stored.columns, op.transposed = stored_transposed, op.factor = factor;
  op.rows = m.rows, op.columns = m.columns, op.tiles = tiles.get();
  in_pieces(odd_cuts(tiled_panels(op)), [&](int64_t begin, int64_t end) { tiled_pack_cpu(op, begin, end); });
  return tiles;
}
uint16_t piece_element(const void* tiles, int64_t i, int64_t j, int64_t columns) {
  const int64_t piece = i / 32 * tiled_pieces(columns) + j / 32;
  return static_cast<const uint16_t*>(tiles)[piece * 1024 + i % 32 * 32 + j % 32];
}
Matrix plain(const void* tiles, int64_t rows, int64_t columns) {
  Matrix m{rows, columns, {}};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) m.bits.push_back(piece_element(tiles, i, j, columns));
  return m;
}

// `chunk`: pieces of k per call.
void multiply(TiledProduct op, ProductUnit unit, bool in_odd_pieces, int64_t chunk = 1 << 20) {
  op.unit = unit;
  const Memory sums = memory(tiled_sum_bytes(op));
  if (chunk < tiled_pieces(op.k)) op.sums = sums.get();
  for (; op.k_end < tiled_pieces(op.k); op.k_begin = op.k_end) {
    op.k_end = std::min(op.k_begin + chunk, tiled_pieces(op.k));
    const Memory scratch = memory(tiled_scratch_bytes(op));
    const std::vector<int64_t> all = {0, tiled_tasks(op)};
    in_pieces(in_odd_pieces ? odd_cuts(tiled_tasks(op)) : all,
              [&](int64_t begin, int64_t end) { tiled_product_cpu(op, scratch.get(), begin, end); });
  }
}

class TiledCpu : public ::testing::TestWithParam<ProductUnit> {};
// Those that this processor has; on one without any nobody calls these products.
std::vector<ProductUnit> units_here() {
  std::vector<ProductUnit> units;
  for (const ProductUnit unit : {ProductUnit::avx512_bf16, ProductUnit::amx})
    if (unit <= product_unit()) units.push_back(unit);
  return units;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TiledCpu);
INSTANTIATE_TEST_SUITE_P(Units, TiledCpu, ::testing::ValuesIn(units_here()));

// Whole pieces and rests of them, an odd number of columns of pieces, and more of k than a block is gone through with.
constexpr int64_t kShapes[][3] = {{1, 1, 1}, {32, 64, 32}, {33, 65, 31}, {70, 100, 300}, {5, 200, 64}, {130, 40, 520}};

// One rounding of the result, and float32 sums.
void expect_near(const Matrix& got, int64_t i, int64_t j, double wanted, double sizes) {
  EXPECT_NEAR(got.at(i, j), wanted, std::abs(wanted) / 256 + 1e-5 * sizes) << i << ", " << j;
}

TEST_P(TiledCpu, is_the_product_and_the_summand) {
  for (const auto& [m, n, k] : kShapes)
    for (const bool b_transposed : {false, true}) {
      const Matrix a = matrix(m, k, 1), b = matrix(k, n, 2), s = matrix(m, n, 3);
      const Memory at = tiled(a), bt = tiled(b_transposed ? transposed(b) : b), st = tiled(s);
      for (const bool summand : {false, true})
        for (const bool c_transposed : {false, true}) {
          const Memory tiles = memory(tiled_bytes(m, n));
          Matrix c = c_transposed ? matrix(n, m, 4) : matrix(m, n, 4);
          TiledProduct op;
          op.a = at.get(), op.b = bt.get(), op.b_transposed = b_transposed, op.m = m, op.n = n, op.k = k;
          op.of_product = 0.5F, op.of_summand = -3;
          if (summand) op.summand = st.get();
          op.tiles = tiles.get(), op.c = c.bits.data(), op.c_stride = c.columns, op.c_transposed = c_transposed;
          multiply(op, GetParam(), false);
          const Matrix got = plain(tiles.get(), m, n);
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0, sizes = 0;
              for (int64_t l = 0; l < k; ++l)
                sum += a.at(i, l) * b.at(l, j), sizes += std::abs(a.at(i, l) * b.at(l, j));
              expect_near(got, i, j, 0.5 * sum + (summand ? -3 * s.at(i, j) : 0), sizes);
            }
          EXPECT_EQ((c_transposed ? transposed(c) : c).bits, got.bits);
        }
    }
}

// Rows and columns that do not exist are zeros, so that the next product may read whole pieces.
TEST_P(TiledCpu, fills_pieces_up_with_zeros) {
  const Matrix a = matrix(33, 40, 1), b = matrix(40, 50, 2);
  const Memory at = tiled(a), bt = tiled(b), tiles = memory(tiled_bytes(33, 50));
  TiledProduct op;
  op.a = at.get(), op.b = bt.get(), op.m = 33, op.n = 50, op.k = 40, op.tiles = tiles.get();
  multiply(op, GetParam(), false);
  for (int64_t i = 0; i < 64; ++i)
    for (int64_t j = 0; j < 64; ++j)
      if (i >= 33 || j >= 50) {
        EXPECT_EQ(piece_element(tiles.get(), i, j, 50), 0) << i << ", " << j;
      }
}

TEST_P(TiledCpu, a_symmetric_result_is_the_upper_half_twice) {
  for (const int64_t size : {1, 33, 64, 100, 200}) {
    const Matrix x = matrix(size, 300, 5), s = symmetric(size, 6);
    const Memory xt = tiled(x), st = tiled(s), whole = memory(tiled_bytes(size, size)),
                 half = memory(tiled_bytes(size, size));
    TiledProduct op;
    op.a = op.b = xt.get(), op.b_transposed = true, op.m = op.n = size, op.k = 300;
    op.summand = st.get(), op.of_summand = 2, op.tiles = whole.get();
    multiply(op, GetParam(), false);
    op.symmetric = true, op.tiles = half.get();
    multiply(op, GetParam(), true);
    const Matrix all = plain(whole.get(), size, size), got = plain(half.get(), size, size);
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = 0; j < size; ++j)
        EXPECT_EQ(got.at(i, j), i <= j ? all.at(i, j) : all.at(j, i)) << i << ", " << j;
  }
}

TEST_P(TiledCpu, has_the_same_bits_however_tasks_are_divided) {
  for (const auto& [m, n, k] : kShapes) {
    const Matrix a = matrix(m, k, 7), b = matrix(k, n, 8);
    const Memory at = tiled(a), bt = tiled(b), at_once = memory(tiled_bytes(m, n)), divided = memory(tiled_bytes(m, n));
    TiledProduct op;
    op.a = at.get(), op.b = bt.get(), op.m = m, op.n = n, op.k = k, op.tiles = at_once.get();
    multiply(op, GetParam(), false);
    op.tiles = divided.get();
    multiply(op, GetParam(), true);
    EXPECT_EQ(plain(at_once.get(), m, n).bits, plain(divided.get(), m, n).bits);
    multiply(op, GetParam(), true, 3);  // the sums of earlier calls are those that a single one has
    EXPECT_EQ(plain(at_once.get(), m, n).bits, plain(divided.get(), m, n).bits);
  }
}

TEST_P(TiledCpu, may_write_over_the_summand_and_what_stands_on_the_right) {
  const Matrix f = symmetric(70, 9), x = matrix(70, 100, 10);
  const Memory ft = tiled(f), xt = tiled(x), apart = memory(tiled_bytes(70, 100));
  TiledProduct op;
  op.a = ft.get(), op.b = xt.get(), op.m = 70, op.n = 100, op.k = 70;
  op.summand = xt.get(), op.of_summand = 3, op.tiles = apart.get();
  multiply(op, GetParam(), false);
  op.tiles = xt.get();
  multiply(op, GetParam(), true);
  EXPECT_EQ(plain(xt.get(), 70, 100).bits, plain(apart.get(), 70, 100).bits);
}

TEST_P(TiledCpu, packs_either_way_with_a_factor) {
  const Matrix x = matrix(45, 70, 11);
  const Memory rows = tiled(x, false, 0.3F), columns = tiled(x, true, 0.3F);
  const Matrix got = plain(rows.get(), 45, 70);
  EXPECT_EQ(got.bits, plain(columns.get(), 45, 70).bits);
  for (size_t i = 0; i < x.bits.size(); ++i) EXPECT_EQ(got.bits[i], to_bf16(widened(Bf16{x.bits[i]}) * 0.3F)) << i;
}

TEST_P(TiledCpu, adds_to_the_diagonal) {
  const Matrix x = symmetric(50, 12);
  const Memory tiles = tiled(x);
  tiled_add_to_diagonal(tiles.get(), 50, 2.5F);
  for (int64_t i = 0; i < 50; ++i)
    for (int64_t j = 0; j < 50; ++j) {
      const auto wanted = static_cast<float>(x.at(i, j)) + (i == j ? 2.5F : 0.0F);
      EXPECT_EQ(piece_element(tiles.get(), i, j, 50), to_bf16(wanted)) << i << ", " << j;
    }
}

}  // namespace
}  // namespace drivetrain::kernels
