// Sums of squares on the CPU against long double, and what must hold bit by bit.
//
// The same source once more without vector code, to compare bits with.
#define DRIVETRAIN_VECTOR_CLONES
#define square_sum_cpu square_sum_cpu_plain
#define sum_in_order_cpu sum_in_order_cpu_plain
#define segment_sum_cpu segment_sum_cpu_plain
#include "kernels/optimizer/square_sum_cpu.cpp"
#undef square_sum_cpu
#undef sum_in_order_cpu
#undef segment_sum_cpu

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
DRIVETRAIN_KERNEL void square_sum_cpu(const SquareSum&, int64_t block_begin, int64_t block_end);
DRIVETRAIN_KERNEL double sum_in_order_cpu(const double* x, int64_t n);
DRIVETRAIN_KERNEL void segment_sum_cpu(const SegmentSum&, int64_t segment_begin, int64_t segment_end);
namespace {

using namespace test;

constexpr int64_t kSizes[] = {1, 7, 8, 9, 63, 1000, 1023, 1024, 1025, 1031, 2048, 9 * 1024 + 77};

struct Problem {
  Problem(int64_t n, Dtype dtype) : x(normal_numbers(n, n)), half(n), sums(blocks_of(n, kSquareBlock), -1.0) {
    for (int64_t i = 0; i < n; ++i) half[i] = dtype == Dtype::f16 ? to_f16(x[i]) : to_bf16(x[i]);
    op.x = dtype == Dtype::f32 ? static_cast<const void*>(x.data()) : half.data();
    op.sums = sums.data(), op.n = n, op.dtype = dtype;
  }
  long double expected(int64_t block) const {
    long double sum = 0;
    for (int64_t i = block * kSquareBlock; i < op.n && i < (block + 1) * kSquareBlock; ++i) {
      const long double value = op.dtype == Dtype::f32    ? x[i]
                                : op.dtype == Dtype::bf16 ? widened(Bf16{half[i]})
                                                          : widened(F16{half[i]});
      sum += value * value;
    }
    return sum;
  }
  int64_t blocks() const { return static_cast<int64_t>(sums.size()); }

  std::vector<float> x;
  std::vector<uint16_t> half;
  std::vector<double> sums;
  SquareSum op;
};

TEST(SquareSumCpu, every_block_has_its_own_sum) {
  for (const int64_t n : kSizes) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      Problem p(n, dtype);
      square_sum_cpu(p.op, 0, p.blocks());
      for (int64_t b = 0; b < p.blocks(); ++b) {
        const double want = static_cast<double>(p.expected(b));
        // A square of a float32 is exact in float64; a lane adds 128 of them.
        ASSERT_NEAR(p.sums[b], want, want * 131 * std::numeric_limits<double>::epsilon()) << n << " block " << b;
      }
    }
  }
}

TEST(SquareSumCpu, cuts_and_vector_widths_do_not_change_a_bit) {
  for (const int64_t n : kSizes) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      Problem whole(n, dtype), single(n, dtype), plain(n, dtype);
      square_sum_cpu(whole.op, 0, whole.blocks());
      for (int64_t b = single.blocks() - 1; b >= 0; --b) square_sum_cpu(single.op, b, b + 1);
      square_sum_cpu_plain(plain.op, 0, plain.blocks());
      EXPECT_EQ(whole.sums, single.sums) << n;
      EXPECT_EQ(whole.sums, plain.sums) << n;
    }
  }
}

// A tensor that is cut at a block's border gives the sums of the whole.
TEST(SquareSumCpu, pieces_cut_at_blocks_give_the_blocks_of_the_whole) {
  Problem whole(5 * kSquareBlock + 300, Dtype::f32);
  square_sum_cpu(whole.op, 0, whole.blocks());
  std::vector<double> sums(6);
  SquareSum first = whole.op, rest = whole.op;
  first.n = 2 * kSquareBlock, first.sums = sums.data();
  rest.x = whole.x.data() + first.n, rest.n = whole.op.n - first.n, rest.sums = sums.data() + 2;
  square_sum_cpu(first, 0, 2);
  square_sum_cpu(rest, 0, 4);
  EXPECT_EQ(sums, whole.sums);
}

TEST(SquareSumCpu, large_numbers_do_not_overflow_and_nan_shows) {
  Problem p(3000, Dtype::f32);
  p.x[5] = 3e38F, p.x[1030] = -std::numeric_limits<float>::infinity(), p.x[2999] = NAN;
  square_sum_cpu(p.op, 0, 3);
  EXPECT_NEAR(p.sums[0] / (static_cast<double>(3e38F) * 3e38F), 1, 1e-14);
  EXPECT_TRUE(std::isinf(p.sums[1]));
  EXPECT_TRUE(std::isnan(p.sums[2]));
}

TEST(SquareSumCpu, sum_in_order_adds_from_left_to_right) {
  const double x[] = {1e16, 1, 1, -1e16, 0.5};
  EXPECT_EQ(sum_in_order_cpu(x, 5), 0.5);  // each 1 is lost in the first number
  EXPECT_EQ(sum_in_order_cpu(x, 1), 1e16);
  EXPECT_EQ(sum_in_order_cpu(x, 0), 0);
}

TEST(SquareSumCpu, segments_are_added_each_from_left_to_right) {
  const double x[] = {0.5, 1e16, 1, 1, -1e16, 3};
  const int64_t first[] = {1, 5, 0, 4}, count[] = {4, 1, 0, 2};
  double sums[] = {-1, -1, -1, -1};
  SegmentSum op{x, first, count, sums, 4};
  segment_sum_cpu(op, 2, 4);
  EXPECT_EQ(sums[0], -1);  // not asked for
  segment_sum_cpu(op, 0, 2);
  EXPECT_EQ(sums[0], 0);
  EXPECT_EQ(sums[1], 3);
  EXPECT_EQ(sums[2], 0);
  EXPECT_EQ(sums[3], -1e16 + 3);
}

}  // namespace
}  // namespace drivetrain::kernels
