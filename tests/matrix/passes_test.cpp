// What ten plain float32 steps do not show: evaluation, which runs forward only, and updates in half precision, which
// all ranks leave out together.
#include <gtest/gtest.h>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "matrix/cells.h"
#include "matrix/curve.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

using Names = std::vector<std::string>;

std::string test_name(const testing::TestParamInfo<Names>& info) {
  std::string name;
  for (const std::string& part : info.param) name += (name.empty() ? "" : "_") + part;
  return name;
}

std::vector<Value> metrics_of(const Names& values, const std::string& sections) {
  const TempFolder folder;
  const Cell cell = cell_of(values);
  Value config = config_of(cell, base_config());
  add_sections(config, sections);
  config.set("output_dir", folder / "run");
  return run_threads(config, ranks_of(cell)).metrics;
}

// The largest relative difference of a figure; infinite where one run has it and the other does not.
double difference(const std::vector<Value>& a, const std::vector<Value>& b, const char* figure) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const Value *x = a[i].find(figure), *y = b[i].find(figure);
    const bool none_x = !x || x->is_null(), none_y = !y || y->is_null();
    if (none_x != none_y) return INFINITY;
    if (!none_x) largest = std::max(largest, std::abs(x->as_double() - y->as_double()) / std::abs(y->as_double()));
  }
  return largest;
}

int count_of(const std::vector<Value>& metrics, const char* figure) {
  int count = 0;
  for (const Value& line : metrics) {
    const Value* value = line.find(figure);
    count += value && !value->is_null() && (!value->is_bool() || value->as_bool());
  }
  return count;
}

class Passes : public testing::TestWithParam<Names> {};

TEST_P(Passes, evaluate_as_one_process_does) {
  const char* sections = R"({"dataset": {"type": "synthetic", "params": {"seq_length": 16}}, "train_steps": 5,
                             "eval_interval": 2, "eval_iters": 3})";
  static const std::vector<Value> alone = metrics_of({"plain"}, sections);
  const std::vector<Value> found = metrics_of(GetParam(), sections);
  ASSERT_EQ(count_of(alone, "valid_loss"), 3);
  EXPECT_LT(difference(found, alone, "valid_loss"), 2e-6);
  EXPECT_LT(difference(found, alone, "loss"), 2e-6);
}

// A loss scale of 2^24 overflows in the first steps; where exactly is the same on all ranks, or they would part.
TEST_P(Passes, leave_the_same_updates_out_in_half_precision) {
  const char* sections = R"({"fp16": {"enabled": true, "initial_scale_power": 24, "hysteresis": 1}})";
  static const std::vector<Value> alone = metrics_of({"plain"}, sections);
  const std::vector<Value> found = metrics_of(GetParam(), sections);
  ASSERT_GE(count_of(alone, "skipped"), 1);
  ASSERT_LE(count_of(alone, "skipped"), 5);
  EXPECT_EQ(difference(found, alone, "loss_scale"), 0);
  EXPECT_EQ(count_of(found, "skipped"), count_of(alone, "skipped"));
  EXPECT_LT(difference(found, alone, "loss"), 5e-3);
  EXPECT_LT(difference(found, alone, "grad_norm"), 3e-2);
}

TEST_P(Passes, train_in_bfloat16_as_one_process_does) {
  const char* sections = R"({"bf16": {"enabled": true}})";
  static const std::vector<Value> alone = metrics_of({"plain"}, sections);
  const std::vector<Value> found = metrics_of(GetParam(), sections);
  EXPECT_LT(difference(found, alone, "loss"), 1e-2);
  EXPECT_LT(difference(found, alone, "grad_norm"), 5e-2);
}

INSTANTIATE_TEST_SUITE_P(Cuts, Passes,
                         testing::Values(Names{"dp2", "zero3"}, Names{"tp2", "fused"}, Names{"tp2sp"}, Names{"ring2"},
                                         Names{"ulysses2", "fused"}, Names{"gpipe2"},
                                         Names{"1f1b2", "dp2", "zero2", "fused"}, Names{"interleaved2", "full"},
                                         Names{"zerobubble2", "fused"},
                                         Names{"tp2sp", "interleaved2", "ring2", "zero3"},
                                         Names{"tp2", "zerobubble2", "dp2", "fsdp", "fused"}),
                         test_name);

}  // namespace
}  // namespace drivetrain::test
