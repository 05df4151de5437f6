// data_parallel/fsdp in whole runs: options that the table of bits in tests/sharding leaves out.
#include "support/small_run.h"

namespace drivetrain::test {
namespace {

std::string fsdp(const std::string& params, const std::string& more = "") {
  return concat(R"({"data_parallel": {"type": "fsdp", "params": )", params, "}", more, "}");
}

TEST(FsdpRun, has_the_losses_and_norms_of_whole_copies) {
  const TempFolder folder;
  for (const int ranks : {1, 2, 4}) {
    const std::string whole = figures(train_small(folder, concat("whole", ranks), "{}", ranks));
    int n = 0;
    for (const char* params : {"{}", R"({"prefetch": 0})", R"({"prefetch": 3, "reshard_after_forward": false})",
                               R"({"param_persistence_threshold": 3000})", R"({"sharding_strategy": "NO_SHARD"})"})
      EXPECT_EQ(figures(train_small(folder, concat("run", ranks, "_", ++n), fsdp(params), ranks)), whole)
          << params << " on " << ranks;
  }
}

TEST(FsdpRun, has_them_in_bfloat16_too_and_takes_the_policy_that_says_so) {
  const TempFolder folder;
  const std::string bf16 = R"("bf16": {"enabled": true})";
  const std::string policy = R"({"mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}})";
  EXPECT_EQ(figures(train_small(folder, "fsdp", fsdp(policy, ", " + bf16), 2)),
            figures(train_small(folder, "whole", "{" + bf16 + "}", 2)));
  EXPECT_NE(error_of([&] { train_small(folder, "other", fsdp(policy), 2); }).find("set \"bf16\": {\"enabled\": true}"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
