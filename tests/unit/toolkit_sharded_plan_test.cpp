// What strategies that share state out plan beside other cuts of the world: over which ranks, how much of the model,
// what they send.
#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/sharding/state_sharing.h>

#include "support/plugin_under_test.h"

extern "C" const void* const drivetrain_plugin = nullptr;

namespace drivetrain::test {
namespace {

// Every helper of the base class in one call.
class Sharing : public StateSharing {
 public:
  explicit Sharing(const Services& services) : StateSharing(services) {}
  std::function<void(Sharing&, PlanContext&)> way;
  bool values = false;
  int64_t reuse = 0;
  void plan(PlanContext& ctx) override {
    options_.shard_grads = options_.shard_values = values;
    options_.reuse_distance = reuse;
    way(*this, ctx);
    choose_sums(ctx, {}, 0);
    plan_gathers(ctx);
    plan_memory(ctx);
  }
  static void nothing(Sharing& s, PlanContext& ctx) { s.share_nothing(ctx); }
  static void all(Sharing& s, PlanContext& ctx) { s.share_over_all(ctx); }
  static void pairs(Sharing& s, PlanContext& ctx) { s.share_over_groups(ctx, "pairs", 2); }
  static void second(Sharing& s, PlanContext& ctx) { s.share_with_second_copy(ctx, "second", 2); }
};

// 16 ranks: tp 2 x cp 2 x (four left) of a model of 1000 elements, 600 of them on the fullest stage and cut once more.
RunFacts sixteen() {
  RunFacts run;
  run.world_size = 16, run.rest_ranks = 4, run.joined_ranks = 2, run.rank_share = 0.3, run.accumulation = 4;
  run.taken_ranks = "tp 2 x cp 2";
  return run;
}

struct Planned {
  Planned(const std::function<void(Sharing&, PlanContext&)>& way, bool values = false, const RunFacts& run = sixteen(),
          int64_t reuse = 0)
      : ctx(model(), run), plugin(host.services) {
    plugin.way = way, plugin.values = values, plugin.reuse = reuse;
    plugin.plan(ctx);
  }
  static ModelFacts model() {
    ModelFacts facts;
    facts.parameters = 1000;
    return facts;
  }
  double bytes(MemoryClass of) const {
    double sum = 0;
    for (const auto& m : ctx.memories()) sum += m.memory_class == of ? m.bytes : 0;
    return sum;
  }
  std::string traffic() const {
    std::string text;
    for (const auto& t : ctx.traffics()) text += concat(text.empty() ? "" : "; ", t.axis, " ", t.what, ": ", t.bytes);
    return text;
  }
  static std::string lines(const std::vector<PlanRecord::Note>& notes) {
    std::string text;
    for (const auto& note : notes) text += note.text + "\n";
    return text;
  }

  Host host;
  PlanRecord ctx;
  Sharing plugin;
};

TEST(ShardedPlan, over_all_counts_what_is_left_and_the_parts_of_a_sequence) {
  const Planned planned(Sharing::all);
  EXPECT_EQ(planned.plugin.shard_ranks(), 8);
  EXPECT_EQ(planned.bytes(MemoryClass::parameters), 4 * 300);
  EXPECT_EQ(planned.ctx.updated_elements(), 300.0 / 8);
  ASSERT_EQ(planned.ctx.claims().size(), 1u);
  EXPECT_EQ(planned.ctx.claims()[0].place, PlanRecord::kDataPlace);
  EXPECT_EQ(planned.traffic(), "dp gradients summed and cut: 1050; dp values gathered: 1050");
}

TEST(ShardedPlan, whole_copies_send_their_gradients_out_and_back) {
  const Planned planned(Sharing::nothing);
  EXPECT_EQ(planned.plugin.shard_ranks(), 1);
  EXPECT_EQ(planned.traffic(), "dp gradients summed: 2100");
}

TEST(ShardedPlan, values_that_are_shared_out_are_gathered_for_every_micro_batch_and_direction) {
  const Planned planned(Sharing::all, true);
  EXPECT_EQ(planned.traffic(), "dp gradients summed and cut: 1050; dp values gathered, 8 times: 8400");
  EXPECT_NE(
      Planned::lines(planned.ctx.costs()).find("gathers every unit 8 times per step, 8.4e-06 GB sent by each rank"),
      std::string::npos)
      << Planned::lines(planned.ctx.costs());
}

TEST(ShardedPlan, values_that_stay_whole_within_a_step_are_gathered_once) {
  EXPECT_EQ(Planned(Sharing::all, true, sixteen(), 600).traffic(),
            "dp gradients summed and cut: 1050; dp values gathered: 1050");
  EXPECT_EQ(Planned(Sharing::second, true, sixteen(), 600).traffic(),
            "dp gradients summed and cut: 1050; dp values gathered: 1050");
}

TEST(ShardedPlan, a_second_copy_gathers_for_backward_within_its_group) {
  EXPECT_EQ(Planned(Sharing::second, true).traffic(),
            "dp gradients summed and cut: 1050; dp values gathered, 8 times: 6600");
}

TEST(ShardedPlan, groups_sum_over_the_others_as_replicas_and_say_where_bits_differ) {
  const Planned planned(Sharing::pairs);
  EXPECT_EQ(planned.plugin.shard_ranks(), 2);
  EXPECT_EQ(planned.traffic(),
            "dp gradients summed and cut: 600; replica gradients summed: 900; dp values gathered: 600");
  EXPECT_NE(Planned::lines(planned.ctx.costs()).find("then other axes (parts of a sequence)"), std::string::npos);
  RunFacts alone = sixteen();
  alone.joined_ranks = 1;
  EXPECT_EQ(Planned::lines(Planned(Sharing::pairs, false, alone).ctx.costs()), "");
}

TEST(ShardedPlan, frozen_parameters_are_gathered_where_they_are_cut_and_nothing_else) {
  RunFacts run = sixteen();
  run.rank_trained = 0.03;  // a tenth of the rank's 300 elements
  const Planned whole(Sharing::all, false, run), cut(Sharing::all, true, run);
  EXPECT_EQ(whole.bytes(MemoryClass::parameters), 4 * 300);
  EXPECT_EQ(whole.bytes(MemoryClass::gradients), Planned(Sharing::all).bytes(MemoryClass::gradients) / 10);
  EXPECT_EQ(whole.ctx.updated_elements(), 30.0 / 8);
  EXPECT_EQ(whole.traffic(), "dp gradients summed and cut: 105; dp values gathered: 105");
  EXPECT_EQ(cut.traffic(), "dp gradients summed and cut: 105; dp values gathered, 8 times: 8400");
}

TEST(ShardedPlan, groups_divide_what_other_axes_leave) {
  RunFacts run = sixteen();
  run.world_size = 12, run.rest_ranks = 3;
  EXPECT_EQ(Planned::lines(Planned(Sharing::pairs, false, run).ctx.refusals()),
            "pairs = 2 does not divide the 3 ranks left by tp 2 x cp 2 of 12. Use one of 1, 3, or start a multiple of "
            "8 ranks\n");
  run.taken_ranks = "";
  EXPECT_NE(
      Planned::lines(Planned(Sharing::pairs, false, run).ctx.refusals()).find("that the mesh's other axes leave of 12"),
      std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
