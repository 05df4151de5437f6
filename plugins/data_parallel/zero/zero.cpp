// ZeRO stages 1, 2 and 3 with DeepSpeed's options: how state is shared out is written here, sharing it is the base
// class's.
//
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5
// (stages); Zhang et al. 2022, "MiCS" (groups); Wang et al. 2023, "ZeRO++", section 3.2 (a second copy for backward).
// Unlike DeepSpeed's, stages 1 and 2 really reduce-scatter, and the order of uses is known, not traced, so prefetching
// is right from the first step.
#include <drivetrain/error.h>

#include "plan.h"

namespace drivetrain {
namespace {

class Zero : public ShardedDataParallel {
 public:
  using Options = ZeroOptions;
  static OptionTable options() { return zero_table(); }

  Zero(const Options& options, const Services& services)
      : ShardedDataParallel(services), section_(options), services_(services) {}

  void plan(PlanContext& ctx) override {
    const ZeroPlan plan = plan_zero(section_, ctx);
    options_ = plan.sharding;
    plan_memory(ctx, plan.shard_ranks);
    if (plan.second_ranks > 0) plan_second_copy(ctx, plan.second_ranks);
    // A gather that overlaps the next forward would cross the end of a recorded step.
    const bool nothing_in_flight = !options_.overlap || plan.shard_ranks == 1;
    if (nothing_in_flight && !options_.offload_state && !options_.offload_values) ctx.capturable();
  }

 private:
  void plan_second_copy(PlanContext& ctx, int64_t ranks) const {
    const double whole =
        static_cast<double>(ctx.model().parameters) * static_cast<double>(c10::elementSize(services_.dtypes.param));
    ctx.memory(MemoryClass::parameters, concat("second copy for backward, 1/", ranks),
               whole / static_cast<double>(ranks));
  }

  const Options section_;
  const Services& services_;
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "zero", drivetrain::Zero)
