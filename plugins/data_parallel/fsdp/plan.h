// From options to what the base class does. Main thread, in `plan`.
#pragma once

#include <drivetrain/sharded_data_parallel.h>

#include "options.h"

namespace drivetrain {

struct FsdpPlan {
  ShardingOptions sharding;
  int64_t shard_ranks = 1;  // that one copy of the state is shared out over
};

// Claims the axes and says what is refused, expensive or without effect.
FsdpPlan plan_fsdp(const FsdpOptions& options, const Services& services, PlanContext& ctx);

}  // namespace drivetrain
