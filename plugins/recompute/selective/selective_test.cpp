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

struct Declared : Unit {
  explicit Declared(std::vector<UnitKeeps::Region> all) : Unit("block.0"), regions(std::move(all)) {}
  bool is_block() const override { return true; }
  std::optional<UnitKeeps> keeps() const override { return UnitKeeps{{8, 8}, {1, 0}, regions}; }
  std::vector<ParamPtr> params() const override { return {}; }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
  const std::vector<UnitKeeps::Region> regions;
};

// The last round of `plan`, when the run's blocks are known.
PlanRecord last_round(const std::string& options, std::vector<UnitKeeps::Region> regions) {
  const RecomputePlan plan("selective", options, recompute_run(4096));
  UnitList units;
  units.units.push_back(std::make_shared<Declared>(std::move(regions)));
  plan.policy->choose(units);
  RunFacts run = recompute_run(4096);
  run.rank_layers = 1;
  PlanRecord ctx(RecomputePlan::facts(), run);
  plan.policy->plan(ctx);
  return ctx;
}

TEST(SelectiveRecompute, says_which_regions_free_nothing_in_the_blocks_of_this_run) {
  const PlanRecord cheap = last_round("{}", {{"norm", {}}, {"attn.core", {0, 4}}, {"mlp.act", {}}});
  ASSERT_EQ(cheap.no_effects().size(), 2u);
  EXPECT_EQ(cheap.no_effects()[0].text.find("region norm changes nothing"), 0u) << cheap.no_effects()[0].text;
  EXPECT_EQ(cheap.no_effects()[1].text.find("region mlp.act changes nothing"), 0u) << cheap.no_effects()[1].text;
  ASSERT_EQ(cheap.costs().size(), 1u);
  EXPECT_EQ(cheap.costs()[0].text.find("norms and activation functions run twice"), std::string::npos);
  EXPECT_TRUE(last_round("{}", {{"norm", {2, 0}}, {"attn.core", {0, 4}}, {"mlp.act", {0, 4}}}).no_effects().empty());
}

TEST(SelectiveRecompute, takes_the_regions_that_blocks_declare_and_refuses_others) {
  const std::vector<UnitKeeps::Region> own = {{"experts.act", {0, 4}}, {"norm", {2, 0}}};
  EXPECT_TRUE(last_round(R"({"regions": ["experts.act"]})", own).refusals().empty());
  const PlanRecord unknown = last_round(R"({"regions": ["norm", "mlp"]})", own);
  ASSERT_EQ(unknown.refusals().size(), 1u);
  const std::string& text = unknown.refusals()[0].text;
  EXPECT_NE(text.find("\"mlp\""), std::string::npos) << text;
  EXPECT_NE(text.find("experts.act, norm"), std::string::npos) << text;
}

}  // namespace
}  // namespace drivetrain::test
