// The insides of `drivetrain checkpoint`: values of tensors in boxes, differences, averages. Its commands are tested in
// tests/program.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>

#include "checkpoint_tools/average.h"
#include "checkpoint_tools/diff.h"
#include "checkpoint_tools/elements.h"
#include "support/memory_checkpoint.h"

#include <drivetrain/testkit/checkpoint_store/states.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

MemoryCheckpoint holding(const State& state) {
  MemoryCheckpoint checkpoint;
  checkpoint.tensors_ = state;
  return checkpoint;
}
at::Tensor filled(const std::vector<double>& values, at::ScalarType dtype = at::kFloat) {
  const at::Tensor t = at::empty({static_cast<int64_t>(values.size())}, dtype);
  for (size_t i = 0; i < values.size(); ++i) t[static_cast<int64_t>(i)] = values[i];
  return t;
}

TEST(CheckpointTools, boxes_cover_every_element_once_in_order) {
  for (const int64_t most : {1, 3, 4, 7, 12, 100}) {
    int64_t next = 0;
    const StateBox whole{2, 5, 3, 4};
    for (const StateBox& box : cut_box(whole, most)) {
      EXPECT_LE(box.rows * box.columns, most);
      EXPECT_EQ((box.row - whole.row) * whole.columns + box.column - whole.column, next);
      EXPECT_TRUE(box.rows == 1 || box.columns == whole.columns);
      next += box.rows * box.columns;
    }
    EXPECT_EQ(next, 12) << most;
  }
  EXPECT_TRUE(cut_box({0, 0, 0, 5}, 4).empty());
}

TEST(CheckpointTools, statistics_are_of_the_finite_elements) {
  const auto of = [](const at::Tensor& t) {
    return statistics_of(holding({{"t", t}}), {"t", t.sizes().vec(), t.scalar_type()});
  };
  const ElementStatistics s = of(filled({kNan, -3, 4, kInf, 0}));
  EXPECT_EQ(s.elements, 5);
  EXPECT_EQ(s.non_finite, 2);
  EXPECT_EQ(s.min, -3);
  EXPECT_EQ(s.max, 4);
  EXPECT_EQ(s.l2, 5);
  EXPECT_DOUBLE_EQ(s.mean, 1. / 3);
  EXPECT_EQ(s.first.size(), 5U);
  EXPECT_EQ(of(filled({2, 3})).min, 2);  // zero is not among them
  EXPECT_EQ(of(at::full({1 << 21}, 2, at::kHalf)).mean, 2);
  EXPECT_EQ(of(at::empty({0, 3})).elements, 0);
}

TEST(CheckpointTools, differences_are_the_largest_and_count_bits) {
  const auto of = [](const at::Tensor& a, const at::Tensor& b) {
    return difference_of(holding({{"t", a}}), {"t", a.sizes().vec(), a.scalar_type()}, holding({{"t", b}}),
                         {"t", b.sizes().vec(), b.scalar_type()});
  };
  ElementDifference d = of(filled({1, 100, -2, kNan}), filled({1, 101, -1, kNan}));
  EXPECT_EQ(d.differing, 2);
  EXPECT_EQ(d.absolute, 1);
  EXPECT_EQ(d.relative, 0.5);
  EXPECT_EQ(d.not_finite, 0);
  d = of(filled({0}), filled({-0.0}));
  EXPECT_EQ(d.differing, 1);
  EXPECT_EQ(d.absolute, 0);
  d = of(filled({1, kInf}), filled({kNan, kInf}));
  EXPECT_EQ(d.differing, 1);
  EXPECT_EQ(d.not_finite, 1);
  EXPECT_EQ(of(filled({1, 0.5}), filled({1, 0.5}, at::kBFloat16)).differing, 0);
}

TEST(CheckpointTools, tensors_are_compared_by_name_and_form) {
  const auto compare = [](const State& a, const State& b, std::optional<double> tolerance = std::nullopt) {
    return differences(holding(a), holding(b), tolerance);
  };
  const State state{{"a", filled({1, 2})}, {"b", filled({3})}};
  EXPECT_TRUE(compare(state, state).equal_to_the_bit());
  CheckpointDifferences found = compare(state, {{"a", filled({1, 2.25})}, {"b", filled({3})}}, 0.25);
  EXPECT_FALSE(found.state_differs());
  EXPECT_FALSE(found.equal_to_the_bit());
  EXPECT_TRUE(compare(state, {{"a", filled({1, 2.25})}, {"b", filled({3})}}, 0.2).state_differs());
  EXPECT_TRUE(compare(state, {{"a", filled({1, kNan})}, {"b", filled({3})}}, 1e9).state_differs());
  for (const State& other :
       {State{{"a", filled({1, 2})}}, State{{"a", filled({1, 2})}, {"c", filled({3})}},
        State{{"a", filled({1, 2}).view({2, 1})}, {"b", filled({3})}}, State{{"b", filled({3})}}}) {
    EXPECT_TRUE(compare(state, other, 1e9).state_differs());
    EXPECT_TRUE(compare(other, state, 1e9).state_differs());
  }
  const State half{{"a", filled({1, 2}, at::kHalf)}, {"b", filled({3})}};
  EXPECT_TRUE(compare(state, half).state_differs());  // equal values of another type
  EXPECT_FALSE(compare(state, half, 0).state_differs());
}

TEST(CheckpointTools, the_last_colon_divides_unless_the_word_is_a_folder) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("run:1"));
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(split_folder_and_tag("run"), (Pair{"run", ""}));
  EXPECT_EQ(split_folder_and_tag("a:b/run:step-1"), (Pair{"a:b/run", "step-1"}));
  EXPECT_EQ(split_folder_and_tag(folder.path("run:1")), (Pair{folder.path("run:1"), ""}));
  EXPECT_EQ(split_folder_and_tag(folder.path("run:1:newest")), (Pair{folder.path("run:1"), "newest"}));
}

struct Averages : testing::Test {
  const TempFolder folder;
  State weights(int seed) const {
    return {
        {"model/a", numbers({7, 5}, at::kFloat, seed)},       {"model/b", numbers({40}, at::kBFloat16, seed)},
        {"model/c", numbers({3}, at::kLong, seed)},           {"model/none", at::empty({0, 4})},
        {"optimizer/x/a", numbers({7, 5}, at::kFloat, seed)}, {"strategy/x/a.bias", numbers({7}, at::kFloat, seed)}};
  }
  void SetUp() override {
    const StoreObject made = make_store(built_plugins(), "", Value(), "");
    made.store->open_place(folder.path("run"), true);
    for (const int step : {1, 2, 3}) save(*made.store, weights(step), concat("s", step), step, step);
  }
  AverageOutcome average(const std::vector<std::string>& tags, const std::string& output, uint64_t part_bytes,
                         int stopped = 0) const {
    const std::atomic<int> stop = stopped;
    return average_checkpoints(StoredRun(built_plugins(), folder.path("run"), ""), built_plugins(),
                               {tags, folder.path(output), part_bytes}, stop);
  }
};

TEST_F(Averages, are_means_in_float64_of_the_weights_alone) {
  for (const uint64_t part_bytes : {16, 100, 1 << 20}) {
    SCOPED_TRACE(part_bytes);
    const std::string output = concat("mean-", part_bytes);
    const AverageOutcome outcome = average({"s3", "s1", "s2"}, output, part_bytes);
    const StoredRun run(built_plugins(), folder.path(output), "");
    const State found = read_all(*run.open(run.find("")));
    EXPECT_EQ(found.size(), 4U);
    const State a = weights(1), b = weights(2), c = weights(3);
    for (const char* const name : {"model/a", "model/b"}) {
      const at::Tensor sum = a.at(name).to(at::kDouble) + b.at(name).to(at::kDouble) + c.at(name).to(at::kDouble);
      EXPECT_TRUE(equal_bits(found.at(name), (sum / 3).to(a.at(name).scalar_type()))) << name;
    }
    EXPECT_TRUE(equal_bits(found.at("model/c"), c.at("model/c"))) << "whole numbers are the newest's";
    EXPECT_TRUE(run.open(run.find(""))->verify().empty());
    EXPECT_EQ(outcome.averaged, 3U);
    EXPECT_EQ(outcome.taken, 1U);
    EXPECT_EQ(outcome.left_out, 2U);
    EXPECT_EQ(outcome.strategies, std::vector<std::string>{"strategy/x"});
    EXPECT_NE(outcome.text(output).find("among them the state of strategy/x"), std::string::npos);
    EXPECT_EQ(run.tags()[0].step, 3);
  }
}

TEST_F(Averages, leave_nothing_behind_when_they_are_stopped_or_fail) {
  EXPECT_TRUE(average({"s1", "s2"}, "new/mean", 16, SIGINT).stopped);
  EXPECT_FALSE(std::filesystem::exists(folder.path("new")));
  std::filesystem::create_directory(folder.path("empty"));
  // Parts whose slices lie in the other files are written before.
  for (const int rank : {0, 1, 2}) {
    const std::string data = folder.path(concat("run/checkpoints/s3/rank-0000", rank, ".safetensors"));
    std::filesystem::rename(data, data + ".away");
    EXPECT_THROW(average({"s1", "s3"}, "empty", 16), Error);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path("empty"))) << rank;
    std::filesystem::rename(data + ".away", data);
  }
  EXPECT_FALSE(average({"s1", "s3"}, "empty", 16).stopped);
}

}  // namespace
}  // namespace drivetrain::test
