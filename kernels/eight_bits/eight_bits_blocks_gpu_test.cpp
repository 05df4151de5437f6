// Casts to 8 bits with scales of blocks against their definition, and where values and scales lie.
#include "kernels/eight_bits/eight_bits_blocks.h"

#include <cmath>

#include "kernels/common/device_test.h"
#include "kernels/eight_bits/eight_bits_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;
using namespace eight_bits_test;

class EightBitsBlocksOnGpu : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && eight_bits_blocks_cuda({}, nullptr) == kNoProductsOfBlocks)
      GTEST_SKIP() << "GPU 0 is older than sm_90";
  }
};

struct Case {
  int64_t n, k;
  bool square;
  bool rows = true, columns = true;
  int64_t skip = 0;
};

// A matrix and its scales as the header says that they lie, R rows of S summed numbers each.
struct Laid {
  Laid(int64_t R, int64_t S, bool square)
      : R(R), S(S), height(rounded_up(R, 16)), across(rounded_up(S, 128)), square(square) {}
  size_t values() const { return static_cast<size_t>(height * across); }
  size_t inverses() const {
    const int64_t blocks = blocks_of(S, 128);
    return static_cast<size_t>(square ? blocks_of(R, 128) * rounded_up(blocks, 4) : blocks * height);
  }
  size_t inverse_at(int64_t row, int64_t block) const {
    return static_cast<size_t>(square ? row / 128 * rounded_up(blocks_of(S, 128), 4) + block : block * height + row);
  }
  int64_t R, S, height, across;
  bool square;
};

// `x`: [R, S].
void expect_cast(const Laid& laid, const std::vector<double>& x, const std::vector<uint8_t>& values,
                 const std::vector<float>& inverses, const char* what) {
  const BlockCast cast = cast_by_definition(x, laid.R, laid.S, laid.square ? 128 : 1);
  std::vector<double> wanted(laid.values(), 0.0), wanted_inverses(laid.inverses(), 1.0);
  for (int64_t i = 0; i < laid.R; ++i)
    for (int64_t j = 0; j < laid.S; ++j) {
      wanted[static_cast<size_t>(i * laid.across + j)] = cast.values[static_cast<size_t>(i * laid.S + j)];
      const int64_t block = (laid.square ? i / 128 : i) * blocks_of(laid.S, 128) + j / 128;
      wanted_inverses[laid.inverse_at(i, j / 128)] = cast.inverses[static_cast<size_t>(block)];
    }
  expect_values(values, wanted, false, what);
  for (size_t i = 0; i < inverses.size(); ++i)
    ASSERT_TRUE(same(static_cast<double>(inverses[i]), wanted_inverses[i]))
        << what << " inverses[" << i << "]: found " << inverses[i] << ", wanted " << wanted_inverses[i];
}

void cast_case(const Case& c, Dtype dtype, const std::vector<double>& values) {
  SCOPED_TRACE(testing::Message() << c.n << " x " << c.k << (c.square ? " square" : "") << " dtype "
                                  << static_cast<int>(dtype) << " " << c.rows << c.columns);
  const Laid as_it_lies(c.n, c.k, c.square), transposed(c.k, c.n, c.square);
  Numbers x(dtype, values, c.skip);
  Array<uint8_t> rows(std::vector<uint8_t>(as_it_lies.values(), 0xa5)),
      columns(std::vector<uint8_t>(transposed.values(), 0xa5));
  Array<float> row_inverses(std::vector<float>(as_it_lies.inverses(), -7)),
      column_inverses(std::vector<float>(transposed.inverses(), -7));
  EightBitsBlocks op;
  op.x = x.data(), op.n = c.n, op.k = c.k, op.square = c.square, op.dtype = dtype;
  if (c.rows) op.rows = rows.as<uint8_t>(), op.row_inverses = row_inverses.as<float>();
  if (c.columns) op.columns = columns.as<uint8_t>(), op.column_inverses = column_inverses.as<float>();
  run_repeatedly({&rows, &columns, &row_inverses, &column_inverses},
                 [&](void* stream) { return eight_bits_blocks_cuda(op, stream); });

  const std::vector<double> given = x.first();
  std::vector<double> turned(given.size());
  for (int64_t i = 0; i < c.n; ++i)
    for (int64_t j = 0; j < c.k; ++j)
      turned[static_cast<size_t>(j * c.n + i)] = given[static_cast<size_t>(i * c.k + j)];
  if (c.rows) expect_cast(as_it_lies, given, rows.now(), row_inverses.now(), "rows");
  if (c.columns) expect_cast(transposed, turned, columns.now(), column_inverses.now(), "columns");
}

TEST_F(EightBitsBlocksOnGpu, casts_by_the_largest_of_each_block_as_it_lies_and_transposed) {
  constexpr int64_t kSizes[][3] = {{128, 128, 0}, {130, 72, 0}, {3, 45, 0}, {260, 144, 0}, {17, 64, 1}, {1, 1, 0}};
  for (const auto& [n, k, skip] : kSizes)
    for (const bool square : {false, true})
      for (const Dtype dtype : kDtypes) {
        std::vector<double> values = random_values(n * k, 3, 0.02);
        for (int64_t i = 0; i < n * k; ++i)  // rows and columns of other sizes, and one of zeros
          values[static_cast<size_t>(i)] *= i / k == 2 ? 0 : std::ldexp(1, static_cast<int>(i / k % 5 - i % k % 7));
        cast_case({n, k, square, true, true, skip}, dtype, values);
      }
}

TEST_F(EightBitsBlocksOnGpu, casts_what_is_asked_for_alone) {
  for (const bool square : {false, true})
    for (const bool rows : {false, true})
      cast_case({200, 136, square, rows, !rows}, Dtype::bf16, random_values(200 * 136, 4));
}

// More than three blocks along what a product sums: rows of scales of squares begin in sixteen bytes.
TEST_F(EightBitsBlocksOnGpu, scales_of_many_blocks_lie_where_products_look_for_them) {
  cast_case({16, 656, true}, Dtype::bf16, random_values(16 * 656, 5));
  cast_case({16, 656, false}, Dtype::bf16, random_values(16 * 656, 5));
}

TEST_F(EightBitsBlocksOnGpu, what_is_not_finite_shows_in_its_blocks_alone) {
  for (const double bad : {kNan, static_cast<double>(INFINITY), -static_cast<double>(INFINITY)})
    for (const bool square : {false, true}) {
      std::vector<double> values = random_values(140 * 136, 6);
      values[131 * 136 + 5] = bad;
      cast_case({140, 136, square}, Dtype::bf16, values);
    }
}

// The largest number of the type and its neighbours, where the power of two changes; the smallest and the largest
// numbers of float32, whose scales are bounded; zeros of both signs.
TEST_F(EightBitsBlocksOnGpu, powers_of_two_change_where_the_largest_number_no_longer_fits) {
  std::vector<double> firsts = {0.0, -0.0, 0x1p-149, 0x1p-126, 0x1.fffffep127, 0x1p-118, 0x1p-119, 0x1p-111, 1.0};
  for (const double most : {448.0, 56.0, 3.5, 57344.0, 0x1.cp-110}) {
    const float exactly = static_cast<float>(most);
    for (const float x : {exactly, std::nextafter(exactly, 0.0F), std::nextafter(exactly, 1e9F)})
      firsts.push_back(static_cast<double>(x));
  }
  const int64_t n = static_cast<int64_t>(firsts.size());
  std::vector<double> values(static_cast<size_t>(n * 16));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < 16; ++j)
      values[static_cast<size_t>(i * 16 + j)] = firsts[static_cast<size_t>(i)] * (j == 0 ? 1 : std::ldexp(j, -6));
  for (const bool square : {false, true}) cast_case({n, 16, square}, Dtype::f32, values);
}

TEST_F(EightBitsBlocksOnGpu, half_of_a_result_is_refused) {
  Array<uint8_t> bytes(std::vector<uint8_t>(16 * 128));
  Numbers x(Dtype::f32, random_values(16 * 128, 1));
  EightBitsBlocks op;
  op.x = x.data(), op.rows = bytes.as<uint8_t>(), op.n = 16, op.k = 128;
  EXPECT_NE(eight_bits_blocks_cuda(op, nullptr), 0);
}

}  // namespace
}  // namespace drivetrain::kernels
