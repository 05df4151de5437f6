#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
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

// A step whose batch has positions of its own.
struct OwnPositions : StepContext {
  Batch own;
  Visit now;
  int64_t step() const override { return 1; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return own; }
  const Visit& visit() const override { return now; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}
};

TEST(RotaryPositions, rows_with_positions_of_their_own_have_a_row_of_angles_for_each) {
  const auto longs = at::TensorOptions(at::kLong);
  const std::vector<double> frequencies = {1, 0.3};
  ops::RotaryPositions positions(frequencies);
  const at::Tensor like = at::zeros({1});
  const ops::RotaryTable whole = ops::rotary_table(frequencies, 0, 4, like);
  OwnPositions ctx;
  ctx.own.tokens_BS = at::zeros({2, 4}, longs);
  EXPECT_TRUE(at::equal(positions.table(ctx, like).cos, whole.cos));
  for (const auto& ids : {at::tensor({0, 1, 0, 1, 0, 1, 2, 0}, longs), at::tensor({0, 0, 0, 1, 0, 1, 2, 3}, longs)}) {
    ctx.own.position_ids_BS = ids.view({2, 4});
    const ops::RotaryTable own = positions.table(ctx, like);
    EXPECT_TRUE(at::equal(own.cos, whole.cos.index_select(0, ids)));
    EXPECT_TRUE(at::equal(own.sin, whole.sin.index_select(0, ids)));
  }
}

// A device without numbers stands for a GPU.
TEST(SplitHeads, are_views_of_the_product_on_a_gpu_where_nothing_is_added_or_turned) {
  const at::Tensor qkv = at::empty({2, 5, (4 + 2 * 2) * 8}, at::TensorOptions(at::kBFloat16).device(at::kMeta));
  const ops::Heads heads = ops::split_heads(qkv, {}, {}, 4, 2);
  EXPECT_EQ(heads.q.sizes(), at::IntArrayRef({2, 5, 4, 8}));
  EXPECT_EQ(heads.k.sizes(), at::IntArrayRef({2, 5, 2, 8}));
  EXPECT_EQ(heads.v.sizes(), at::IntArrayRef({2, 5, 2, 8}));
  int64_t column = 0;
  for (const at::Tensor& part : {heads.q, heads.k, heads.v}) {
    EXPECT_TRUE(part.is_alias_of(qkv));
    EXPECT_EQ(part.strides(), at::IntArrayRef({5 * 64, 64, 8, 1}));
    EXPECT_EQ(part.storage_offset(), column);
    column += part.size(2) * 8;
  }
}

TEST(SplitHeads, are_tensors_of_their_own_on_the_cpu) {
  const at::Tensor qkv = at::ones({2, 5, (4 + 2 * 2) * 8});
  const ops::Heads heads = ops::split_heads(qkv, {}, {}, 4, 2);
  for (const at::Tensor& part : {heads.q, heads.k, heads.v}) {
    EXPECT_FALSE(part.is_alias_of(qkv));
    EXPECT_TRUE(part.is_contiguous());
  }
}

}  // namespace
}  // namespace drivetrain
