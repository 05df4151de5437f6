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
  EXPECT_NE(plan.costs().find("and their inputs go to the host and back"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
