// recompute/offload without a run: which blocks, and what it says where nothing can move.
#include <ATen/ops/empty.h>

#include "support/recompute_plan.h"

namespace drivetrain::test {
namespace {

TEST(OffloadRecompute, chooses_blocks_as_full_does) {
  EXPECT_EQ(RecomputePlan("offload", "{}").recomputed(3), "012");
  EXPECT_EQ(RecomputePlan("offload", R"({"fraction": 0.5})").recomputed(4), "01..");
  EXPECT_EQ(RecomputePlan("offload", "{}").recomputed(3, "norm"), "...");
}

TEST(OffloadRecompute, moves_nothing_on_the_cpu_and_says_so) {
  const RecomputePlan plan("offload", "{}", recompute_run(1024));
  EXPECT_EQ(plan.idle(),
            "offload changes nothing: the run is on the CPU: inputs of blocks are in the host's memory already. Blocks "
            "run again as "
            "with \"type\": \"full\"");
  EXPECT_EQ(plan.costs(),
            "the forward of 12 of 12 blocks runs twice: about 24 % more work in a step. \"type\": \"none\" keeps all "
            "activations");
  const at::Tensor x = at::empty({4});
  EXPECT_EQ(plan.policy->hold({x})->restore()[0].const_data_ptr(), x.const_data_ptr());
}

TEST(OffloadRecompute, on_a_device_names_the_copies_and_is_not_recorded) {
  const RecomputePlan plan("offload", "{}", recompute_run(1024, "cuda"));
  EXPECT_EQ(plan.idle(), "");
  EXPECT_FALSE(plan.capturable());
  EXPECT_EQ(plan.not_recorded(), "\"type\": \"offload\" finds memory of the host while a step runs; use \"full\"");
  EXPECT_NE(plan.costs().find("and their inputs go to the host and back"), std::string::npos);
}

TEST(OffloadRecompute, on_a_device_plans_the_bytes_of_its_blocks_inputs) {
  RunFacts run = recompute_run(1024, "cuda");
  run.micro_batch_size = 2, run.rank_positions = 512, run.rank_layers = 12, run.accumulation = 8;
  run.micro_batches_in_flight = 3, run.compute_bytes = 2;
  const RecomputePlan plan("offload", R"({"fraction": 0.5})", run);
  const double inputs = 6.0 * 2 * 512 * 768 * 2;
  ASSERT_EQ(plan.ctx.memories().size(), 1u);
  EXPECT_TRUE(plan.ctx.memories()[0].on_host);
  EXPECT_EQ(plan.ctx.memories()[0].bytes, 3 * inputs);
  ASSERT_EQ(plan.ctx.copies().size(), 2u);
  using Beside = HostTraffic::Beside;
  for (const auto& [by, copies] : plan.ctx.copies()) EXPECT_EQ(copies.bytes, 8 * inputs) << copies.what;
  EXPECT_EQ(plan.ctx.copies()[0].traffic.beside, Beside::forward);
  EXPECT_EQ(plan.ctx.copies()[1].traffic.beside, Beside::nothing);
  EXPECT_EQ(RecomputePlan("offload", R"({"pin_memory": false})", run).ctx.copies()[0].traffic.beside, Beside::nothing);
  run.device = "cpu";
  const RecomputePlan here("offload", R"({"fraction": 0.5})", run);
  EXPECT_TRUE(here.ctx.memories().empty() && here.ctx.copies().empty());
}

}  // namespace
}  // namespace drivetrain::test
