#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <gtest/gtest.h>

namespace drivetrain {
namespace {

TEST(RotaryPositions, tables_of_ranges_are_slices_of_the_whole) {
  const std::vector<double> frequencies = {1, 0.3};
  ops::RotaryPositions positions(frequencies);
  const at::Tensor like = at::zeros({1});
  const ops::RotaryTable whole = ops::rotary_table(frequencies, 0, 12, like);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::equal(positions.table({{0, 12}}, like).cos, whole.cos));
    EXPECT_TRUE(at::equal(positions.table({{3, 4}}, like).sin, whole.sin.narrow(0, 3, 4)));
    const ops::RotaryTable two = positions.table({{8, 3}, {1, 2}}, like);
    EXPECT_TRUE(at::equal(two.cos, at::cat({whole.cos.narrow(0, 8, 3), whole.cos.narrow(0, 1, 2)})));
    EXPECT_TRUE(at::equal(two.sin, at::cat({whole.sin.narrow(0, 8, 3), whole.sin.narrow(0, 1, 2)})));
    EXPECT_TRUE(positions.table({{8, 3}, {1, 2}}, like).cos.is_same(two.cos)) << "put together again";
  }
  EXPECT_EQ(positions.table({{8, 3}, {1, 2}}, like.to(at::kDouble)).cos.scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace drivetrain
