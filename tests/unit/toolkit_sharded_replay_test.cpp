// Sharded values where the hooks of a step are not called, as for a replay: step_begin alone has to see to it that the
// next pass reads new values. Numbers are those of the suite of data_parallel, with evaluations between the steps.
#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/testkit/data_parallel/suite.h>

#include "support/sharing_strategy.h"

namespace drivetrain::test {
namespace {

// Behind each training step it forgets what its hooks have found in it, as far as a replay would not have called them.
class LikeReplayed : public SharingStrategy {
 public:
  LikeReplayed(const Services& services, const ShardingOptions& options) : SharingStrategy(services) {
    options_ = options;
    options_.shard_axes = {"dp"}, options_.gather_late = true;
  }
  void plan(PlanContext& ctx) override {
    ctx.claim_axis("dp", PlanRecord::kRest, PlanRecord::Reads::other_rows, 2);
    options_.micro_batches = ctx.run().accumulation.value_or(1);
    options_.reduce_every = ctx.run().reduce_every.value_or(1);
  }
  void step_begin(StepContext& ctx) override {
    SharingStrategy::step_begin(ctx);
    trains_ = true;
  }
  void after_update(Trainables& chunk, StepContext& ctx) override {
    if (!trains_) SharingStrategy::after_update(chunk, ctx);
  }
  void step_end(StepContext&) override { values().step_begin(); }

 private:
  bool trains_ = false;  // before that come the initial values
};

void expect_right_numbers(const ShardingOptions& options) {
  for (const int64_t ranks : {1, 2, 3}) {
    DataParallelTrial trial{.name = "like replayed", .ranks = ranks, .accumulation = 2, .share = false};
    trial.make = [&](const Services& services) { return std::make_shared<LikeReplayed>(services, options); };
    check_data_parallel(trial);
  }
}

TEST(ShardedReplay, values_that_stay_are_gathered_in_every_step) {
  expect_right_numbers({});
  expect_right_numbers({.shard_grads = true});
}
TEST(ShardedReplay, sharded_values_are_gathered_where_they_are_used) {
  expect_right_numbers({.shard_grads = true, .shard_values = true});
  expect_right_numbers({.shard_grads = true, .shard_values = true, .persistent = 64});  // small ones stay
}
// Who decides it; whether steps are recorded is not known there.
TEST(ShardedReplay, values_that_stay_are_gathered_late_on_a_device_with_overlap) {
  const at::Device cpu(at::kCPU), gpu(at::kCUDA, 0);
  EXPECT_TRUE(sharding::gathers_late({}, gpu));
  EXPECT_FALSE(sharding::gathers_late({}, cpu));
  EXPECT_TRUE(sharding::gathers_late({.gather_late = true}, cpu));
  for (const bool late : {false, true})
    EXPECT_FALSE(sharding::gathers_late({.overlap = false, .gather_late = late}, gpu));
}

}  // namespace
}  // namespace drivetrain::test
