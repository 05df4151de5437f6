// recompute/full without a run: which blocks, DeepSpeed's keys, what it says of its cost.
#include "full.h"

#include <drivetrain/mesh.h>

#include "support/recompute_plan.h"

namespace drivetrain::test {
namespace {

TEST(FullRecompute, keeps_the_inputs_of_the_first_blocks_and_all_regions) {
  EXPECT_EQ(RecomputePlan("full", "{}").recomputed(4), "0123");
  EXPECT_EQ(RecomputePlan("full", R"({"fraction": 0.5})").recomputed(4), "01..");
  EXPECT_EQ(RecomputePlan("full", R"({"fraction": 0.6})").recomputed(3), "01.");
  EXPECT_EQ(RecomputePlan("full", "{}").recomputed(4, "attn.core"), "....");
}

TEST(FullRecompute, says_what_it_costs) {
  // 144 D^2 of the blocks' and 12 D S of attention's against V D of the head's, a third of it forward.
  EXPECT_EQ(RecomputePlan("full", "{}", recompute_run(1024)).costs(),
            "the forward of 12 of 12 blocks runs twice: about 24 % more work in a step. \"type\": \"none\" keeps all "
            "activations");
  EXPECT_NE(RecomputePlan("full", R"({"fraction": 0.5})", recompute_run(1024))
                .costs()
                .find("6 of 12 blocks runs twice: about 12 %"),
            std::string::npos);
}

TEST(FullRecompute, of_no_block_changes_nothing_and_says_so) {
  const RecomputePlan plan("full", R"({"fraction": 0.04})");
  EXPECT_EQ(plan.costs(), "");
  EXPECT_EQ(plan.idle(), "fraction changes nothing: 0.04 of 12 blocks is none: all activations are kept");
}

TEST(FullRecompute, names_keys_of_deepspeed_that_change_nothing_only_if_they_ask_for_something) {
  EXPECT_EQ(
      RecomputePlan("full", R"({"partition_activations": false, "cpu_checkpointing": false, "number_checkpoints": null,
                          "contiguous_memory_optimization": false, "synchronize_checkpoint_boundary": false, "profile": false})")
          .idle(),
      "");
  for (const char* key : {"contiguous_memory_optimization", "synchronize_checkpoint_boundary", "profile"}) {
    const std::string idle = RecomputePlan("full", concat("{\"", key, "\": true}")).idle();
    EXPECT_EQ(idle.find(concat(key, " changes nothing: ")), 0u) << idle;
  }
  EXPECT_EQ(RecomputePlan("full", R"({"number_checkpoints": 4})").idle(),
            "number_checkpoints changes nothing: it counts buffers of DeepSpeed's; how many blocks run again is "
            "\"fraction\"");
  EXPECT_EQ(
      RecomputePlan("full", R"({"cpu_checkpointing": true})").idle(),
      "cpu_checkpointing changes nothing: the run is on the CPU: inputs of blocks are in the host's memory already");
}

TEST(FullRecompute, on_a_device_inputs_go_to_the_host_only_if_asked) {
  const RecomputePlan plain("full", "{}", recompute_run(1024, "cuda"));
  EXPECT_TRUE(plain.capturable());
  EXPECT_EQ(plain.not_recorded(), "");
  const RecomputePlan away("full", R"({"cpu_checkpointing": true})", recompute_run(1024, "cuda"));
  EXPECT_EQ(away.not_recorded(), "cpu_checkpointing finds memory of the host while a step runs; leave it out");
  EXPECT_EQ(away.idle(), "");
  EXPECT_NE(away.costs().find("their inputs go to the host and back"), std::string::npos);
}

struct NoAttention {
  const Mesh mesh{{}, 0, 1, nullptr};
  ModelFacts facts;
  Builder builder{nullptr, nullptr, mesh, facts};
};

TEST(FullRecompute, inputs_are_cut_over_ranks_by_sequence_parallelism_only) {
  RecomputePlan plan("full", R"({"partition_activations": true})");
  RunFacts shared;
  shared.tensor_ranks = 2;
  RecomputePlan over_two("full", R"({"partition_activations": true})", shared);
  NoAttention alone, two, sequence;
  EXPECT_EQ(error_of([&] { plan.policy->build(alone.builder); }), "");
  ASSERT_EQ(plan.host.log.lines.size(), 1u);
  EXPECT_NE(plan.host.log.lines[0].find("partition_activations changes nothing: there is one tensor-parallel rank"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { over_two.policy->build(two.builder); }),
            "recompute/full: partition_activations asks for inputs of blocks cut over the 2 ranks of tensor_parallel, "
            "which is not in this "
            "version: each keeps all of them\n   set \"sequence_parallel\": true in tensor_parallel, which cuts "
            "everything between "
            "layers, or remove partition_activations");
  sequence.builder.activation_cuts.push_back([](const auto& rows, const auto&) { return rows; });
  EXPECT_EQ(error_of([&] { over_two.policy->build(sequence.builder); }), "");
}

TEST(FullRecompute, is_silent_where_nothing_is_trained) {
  RunFacts run;
  run.training = false;
  const RecomputePlan plan("full", R"({"profile": true})", run);
  EXPECT_EQ(plan.costs() + plan.idle(), "");
}

}  // namespace
}  // namespace drivetrain::test
