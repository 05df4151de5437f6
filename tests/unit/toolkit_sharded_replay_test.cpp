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
    options_.shard_axes = {"dp"};
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

// Which way `attach` chooses.
class Asked : public LikeReplayed {
 public:
  Asked(const Services& services, const ShardingOptions& options, bool late)
      : LikeReplayed(services, options), late_(late) {}
  void attach(UnitList& units) override {
    LikeReplayed::attach(units);
    EXPECT_EQ(sharding().gather_late, late_);
  }
  void after_update(Trainables& chunk, StepContext& ctx) override { SharingStrategy::after_update(chunk, ctx); }

 private:
  const bool late_;
};

void expect_right_numbers(const ShardingOptions& options) {
  for (const int64_t ranks : {1, 2, 3}) {
    DataParallelTrial trial{
        .name = "like replayed", .ranks = ranks, .accumulation = 2, .share = false, .recorded = true};
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
// Else every step would wait for gathers that could have run beside the update.
TEST(ShardedReplay, values_that_stay_are_gathered_late_where_steps_are_recorded_and_gathers_overlap) {
  for (const bool recorded : {false, true})
    for (const bool overlap : {false, true}) {
      DataParallelTrial trial{.name = "asked", .ranks = 2, .share = false, .recorded = recorded};
      trial.make = [&](const Services& services) {
        return std::make_shared<Asked>(services, ShardingOptions{.overlap = overlap}, recorded && overlap);
      };
      check_data_parallel(trial);
    }
}

}  // namespace
}  // namespace drivetrain::test
