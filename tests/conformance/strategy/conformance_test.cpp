// The conformance suite of strategies that make blocks, over those that are built.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/suite.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

// Without recompute_cheap it keeps what the policy says, nothing less.
TEST(FusedBlockConformance, fused_block_passes) {
  // The models are small: beside other tests, threads that wait for each other take ten times as long.
  at::set_num_threads(1);
  run_suite({.kind = "strategy",
             .name = "fused_block",
             .options = parse_json(R"({"recompute_cheap": false})", "test"),
             .train = train_by_threads});
}

}  // namespace
}  // namespace drivetrain::test
