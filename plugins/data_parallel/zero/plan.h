// From options to what the base class does. Main thread, in `plan`.
#pragma once

#include <drivetrain/sharded_data_parallel.h>

#include "options.h"

namespace drivetrain {

struct ZeroPlan {
  ShardingOptions sharding;
  int64_t shard_ranks = 1;   // that one copy of the state is shared out over
  int64_t second_ranks = 0;  // that the copy for backward is cut over; 0: there is none
};

// Claims the axes and says what is refused, expensive or without effect.
ZeroPlan plan_zero(const ZeroOptions& options, PlanContext& ctx);

// Names the keys that were given and change nothing in this run, each once, and refuses those of other versions.
void judge_keys(const ZeroOptions& options, PlanContext& ctx);

// The sections offload_optimizer and offload_param, and their old names.
void choose_offload(const ZeroOptions& options, ShardingOptions& sharding, PlanContext& ctx);

}  // namespace drivetrain
