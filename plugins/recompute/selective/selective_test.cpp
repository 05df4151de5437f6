// recompute/selective without a run: which regions of which blocks, and what it says of its cost.
#include "support/recompute_plan.h"

namespace drivetrain::test {
namespace {

TEST(SelectiveRecompute, takes_regions_of_the_first_blocks_and_no_whole_block) {
  RecomputePlan all("selective", R"({"regions": ["norm", "attn.core", "mlp.act"]})");
  for (const char* region : {"norm", "attn.core", "mlp.act"}) EXPECT_EQ(all.recomputed(3, region), "012") << region;
  EXPECT_EQ(all.recomputed(3), "...");
  EXPECT_EQ(all.recomputed(3, "some.other"), "...");
  RecomputePlan some("selective", R"({"regions": ["attn.core"], "fraction": 0.34})");
  EXPECT_EQ(some.recomputed(3, "attn.core"), "0..");
  EXPECT_EQ(some.recomputed(3, "norm"), "...");
}

TEST(SelectiveRecompute, takes_attention_by_itself_only_where_it_costs_next_to_nothing) {
  RecomputePlan near("selective", "{}", recompute_run(64)), far("selective", "{}", recompute_run(4096));
  for (const char* region : {"norm", "mlp.act"}) {
    EXPECT_EQ(near.recomputed(3, region), "012") << region;
    EXPECT_EQ(far.recomputed(3, region), "012") << region;
  }
  EXPECT_EQ(near.recomputed(3, "attn.core"), "012");
  EXPECT_EQ(far.recomputed(3, "attn.core"), "...");
  EXPECT_EQ(near.costs(),
            "the forward of attention runs twice: about 0.3 % of a step more, for one [B, S, hidden] less per block");
  EXPECT_EQ(
      far.costs(),
      "norms and activation functions run twice. attn.core does not: its forward is about 13 % of a step and would "
      "free one [B, S, hidden] per block; name it in \"regions\" to have it");
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
