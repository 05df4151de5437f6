#include "data/cut_batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "step/step_state.h"

namespace drivetrain {
namespace {

// Tokens 0 .. 15 in two rows; labels are tokens, those divisible by 3 do not count.
Batch two_rows_of_eight() {
  Batch batch;
  batch.tokens_BS = at::arange(16, at::TensorOptions(at::kLong)).view({2, 8});
  batch.labels_BS = batch.tokens_BS.clone().masked_fill_(batch.tokens_BS.remainder(3).eq(0), -100);
  batch.valid_tokens = 10;
  batch.first_sample = 40;
  return batch;
}

// First and last quarter of what it is given.
std::vector<RowRange> outer_quarters(const std::vector<RowRange>& all, const std::vector<int64_t>&) {
  const int64_t quarter = all.at(0).count / 4;
  return {{all[0].first, quarter}, {all[0].first + 3 * quarter, quarter}};
}
// The second half of the last range.
std::vector<RowRange> last_half(const std::vector<RowRange>& all, const std::vector<int64_t>&) {
  const RowRange& last = all.back();
  return {{last.first + last.count / 2, last.count / 2}};
}

TEST(CutBatch, without_cuts_is_the_batch_itself) {
  const Batch whole = two_rows_of_eight(), batch = cut_batch(whole, {});
  EXPECT_TRUE(batch.tokens_BS.is_same(whole.tokens_BS));
  EXPECT_TRUE(batch.positions.empty());
  EXPECT_EQ(batch.valid_tokens, 10);
}

TEST(CutBatch, takes_tokens_and_labels_of_its_positions_and_counts_its_own_labels) {
  const Batch batch = cut_batch(two_rows_of_eight(), {outer_quarters});
  EXPECT_EQ(batch.positions, (std::vector<RowRange>{{0, 2}, {6, 2}}));
  EXPECT_TRUE(
      at::equal(batch.tokens_BS, at::tensor({0, 1, 6, 7, 8, 9, 14, 15}, at::TensorOptions(at::kLong)).view({2, 4})));
  EXPECT_TRUE(at::equal(batch.labels_BS,
                        at::tensor({-100, 1, -100, 7, 8, -100, 14, -100}, at::TensorOptions(at::kLong)).view({2, 4})));
  EXPECT_EQ(batch.valid_tokens, 4);
  EXPECT_EQ(batch.first_sample, 40);
  EXPECT_TRUE(batch.tokens_BS.is_contiguous());
}

TEST(CutBatch, cuts_follow_one_another) {
  const Batch batch = cut_batch(two_rows_of_eight(), {outer_quarters, last_half});
  EXPECT_EQ(batch.positions, (std::vector<RowRange>{{7, 1}}));
  EXPECT_TRUE(at::equal(batch.tokens_BS, at::tensor({7, 15}, at::TensorOptions(at::kLong)).view({2, 1})));
}

TEST(CutBatch, documents_stay_those_of_whole_rows_and_positions_are_cut) {
  Batch whole = two_rows_of_eight();
  whole.cu_seqlens = {0, 5, 8, 9, 16};
  whole.position_ids_BS = at::tensor({0, 1, 2, 3, 4, 0, 1, 2, 0, 0, 1, 2, 3, 4, 5, 6}, at::TensorOptions(at::kLong));
  whole.position_ids_BS = whole.position_ids_BS.view({2, 8});
  const Batch batch = cut_batch(whole, {outer_quarters});
  EXPECT_EQ(batch.cu_seqlens, whole.cu_seqlens);
  EXPECT_TRUE(at::equal(batch.position_ids_BS,
                        at::tensor({0, 1, 1, 2, 0, 0, 5, 6}, at::TensorOptions(at::kLong)).view({2, 4})));
}

TEST(CuSeqlens, boundaries_ascend_over_all_rows_and_every_row_begins_one) {
  EXPECT_EQ(cu_seqlens_problem({}, 2, 8), "");
  EXPECT_EQ(cu_seqlens_problem({0, 5, 8, 9, 16}, 2, 8), "");
  EXPECT_EQ(cu_seqlens_problem({0, 8, 16}, 2, 8), "");
  const auto expect = [](const std::vector<int64_t>& boundaries, const char* part) {
    const std::string found = cu_seqlens_problem(boundaries, 2, 8);
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  expect({0, 8}, "from 0 to 16; found 0 to 8");
  expect({1, 8, 16}, "found 1 to 16");
  expect({0, 5, 5, 8, 16}, "found 5 behind 5");
  expect({0, 7, 9, 16}, "8 is missing between 7 and 9");
  expect({0, 16}, "8 is missing between 0 and 16");
}

TEST(ColumnsOf, a_part_of_the_positions_is_found_among_the_others) {
  const std::vector<RowRange> whole = {{4, 4}, {16, 4}};
  using Ranges = std::vector<RowRange>;
  EXPECT_EQ(columns_of({{4, 4}, {16, 4}}, whole), (Ranges{{0, 4}, {4, 4}}));
  EXPECT_EQ(columns_of({{6, 2}, {16, 1}}, whole), (Ranges{{2, 2}, {4, 1}}));
  EXPECT_EQ(columns_of({{17, 3}}, whole), (Ranges{{5, 3}}));
  EXPECT_EQ(columns_of({{2, 4}}, {{0, 3}, {3, 9}}), (Ranges{{2, 1}, {3, 3}}));
  EXPECT_THROW(columns_of({{7, 2}}, whole), Error);
}

TEST(CutBatch, a_batch_without_labels_stays_without) {
  Batch whole = two_rows_of_eight();
  whole.labels_BS = at::Tensor();
  EXPECT_FALSE(cut_batch(whole, {outer_quarters}).labels_BS.defined());
}

// What layers ask the context for, given such a batch.
class CutContext : public ::testing::Test {
 protected:
  static StepState state(const Batch& batch, std::vector<Builder::SequenceCut> activation_cuts) {
    StepState state(7, nullptr, nullptr, std::move(activation_cuts));
    state.begin(1, Mode::train, {Visit{}});
    state.set_batch(0, batch);
    return state;
  }
};

TEST_F(CutContext, random_numbers_of_whole_batches_name_no_rows) {
  EXPECT_TRUE(state(two_rows_of_eight(), {}).random("site").rows.empty());
}

TEST_F(CutContext, random_numbers_follow_what_goes_from_layer_to_layer) {
  const Batch batch = cut_batch(two_rows_of_eight(), {outer_quarters});
  EXPECT_EQ(state(batch, {}).random("site").rows, batch.positions);
  const StepState cut_again = state(batch, {last_half});
  EXPECT_EQ(cut_again.random("site").rows, (std::vector<RowRange>{{7, 1}}));
  EXPECT_EQ(cut_again.positions(), batch.positions);
  EXPECT_EQ(cut_again.activation_positions(), (std::vector<RowRange>{{7, 1}}));
}

TEST_F(CutContext, a_whole_batch_has_all_positions) {
  EXPECT_EQ(state(two_rows_of_eight(), {}).positions(), (std::vector<RowRange>{{0, 8}}));
}

TEST(PositionIds, count_through_the_ranges) {
  EXPECT_TRUE(at::equal(position_ids({{0, 2}, {6, 3}}, at::Device(at::kCPU)),
                        at::tensor({0, 1, 6, 7, 8}, at::TensorOptions(at::kLong))));
}

}  // namespace
}  // namespace drivetrain
