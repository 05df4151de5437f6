// Fully sharded data parallelism: every rank holds a part of each unit's parameters, gradients and optimizer state;
// whole values exist around a unit's forward and backward only.
//
// Source: Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", section 3 (flat
// parameters, hybrid sharding, prefetching). We differ: the order of uses is known before the first step, and the sum
// over ranks has a fixed order.
#include "plan.h"

namespace drivetrain {
namespace {

class Fsdp : public ShardedDataParallel {
 public:
  using Options = FsdpOptions;
  static OptionTable options() { return fsdp_table(); }

  Fsdp(const Options& options, const Services& services)
      : ShardedDataParallel(services), section_(options), services_(services) {}

  void plan(PlanContext& ctx) override {
    const FsdpPlan plan = plan_fsdp(section_, services_, ctx);
    options_ = plan.sharding;
    plan_memory(ctx, plan.shard_ranks);
    // A gather that overlaps the next forward would cross the end of a recorded step.
    if (plan.shard_ranks == 1) ctx.capturable();
  }

 private:
  const Options section_;
  const Services& services_;
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "fsdp", drivetrain::Fsdp)
