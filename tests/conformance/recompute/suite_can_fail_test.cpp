// The conformance suite of recompute finds what it is there for: a policy of its own passes, and does not with any one
// mistake.
#include <gtest/gtest.h>

#include <drivetrain/testkit/recompute/suite.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

TrainedRun with_mistakes(const Value& config, int ranks) {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_MISTAKEN_DIR}, ""));
  return run_threads(config, ranks, registry);
}

Value policy(const char* params) { return Value::Object{{"type", "mistaken"}, {"params", parse_json(params, "test")}}; }

const RecomputeCase& plain_blocks() { return recompute_cases().front(); }

// Against the same layers where everything is kept.
std::string difference(const char* params) {
  static const std::string plain = [] {
    const Value keeps = policy(R"({"recompute": false})");
    return recompute_bits(plain_blocks(), &keeps, with_mistakes);
  }();
  return recompute_difference(plain_blocks(), policy(params), plain, with_mistakes);
}

TEST(RecomputeSuite, passes_a_right_policy) {
  EXPECT_EQ(difference("{}"), "");
  EXPECT_EQ(difference(R"({"region": "attn.core"})"), "");
}

TEST(RecomputeSuite, catches_a_replay_that_draws_other_random_numbers) {
  EXPECT_NE(difference(R"({"mistake": "other_numbers"})"), "");
  EXPECT_NE(difference(R"({"mistake": "other_numbers", "region": "attn.core"})"), "");
}

TEST(RecomputeSuite, catches_inputs_that_come_back_changed) {
  EXPECT_NE(difference(R"({"mistake": "other_inputs"})"), "");
}

}  // namespace
}  // namespace drivetrain::test
