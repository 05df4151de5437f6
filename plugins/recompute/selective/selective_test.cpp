// recompute/selective without a run: which regions of which blocks, and what it says of its cost.
#include "support/recompute_plan.h"

namespace drivetrain::test {
namespace {

TEST(SelectiveRecompute, takes_the_cheap_regions_of_the_first_blocks_and_no_whole_block) {
  RecomputePlan all("selective", "{}");
  for (const char* region : {"norm", "attn.core", "mlp.act"}) EXPECT_EQ(all.recomputed(3, region), "012") << region;
  EXPECT_EQ(all.recomputed(3), "...");
  EXPECT_EQ(all.recomputed(3, "some.other"), "...");
  RecomputePlan some("selective", R"({"regions": ["attn.core"], "fraction": 0.34})");
  EXPECT_EQ(some.recomputed(3, "attn.core"), "0..");
  EXPECT_EQ(some.recomputed(3, "norm"), "...");
}

TEST(SelectiveRecompute, says_what_attention_costs_and_when_to_leave_it_out) {
  const std::string costs = RecomputePlan("selective", "{}", recompute_run(64)).costs();
  EXPECT_EQ(costs.find("the forward of attention runs twice: about 0.3 % more work in a step. "), 0u) << costs;
  EXPECT_NE(costs.find("set \"regions\": [\"norm\", \"mlp.act\"]"), std::string::npos) << costs;
  EXPECT_EQ(RecomputePlan("selective", R"({"regions": ["norm", "mlp.act"]})", recompute_run(64)).costs(), "");
}

TEST(SelectiveRecompute, of_nothing_says_so) {
  EXPECT_EQ(
      RecomputePlan("selective", R"({"regions": []})").idle(),
      "regions changes nothing: the list is empty: all activations are kept. It takes norm, attn.core and mlp.act");
  EXPECT_EQ(RecomputePlan("selective", R"({"fraction": 0})").idle(),
            "fraction changes nothing: 0 of 12 blocks is none: all activations are kept");
}

TEST(SelectiveRecompute, refuses_regions_that_it_does_not_know) {
  const std::string error = error_of([] { RecomputePlan("selective", R"({"regions": ["norm", "mlp"]})"); });
  EXPECT_NE(error.find("regions[1] is \"mlp\", but recompute/selective takes \"norm\", \"attn.core\" or \"mlp.act\""),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace drivetrain::test
