// Which gradients a way of sharding keeps. Pure functions of the options, for the plan of memory and for what is
// allocated.
#pragma once

#include <drivetrain/toolkit/sharding/state_sharing.h>

namespace drivetrain::sharding {

inline bool sums_several_times(const ShardingOptions& options) {
  return options.reduce_every > 0 && options.reduce_every < options.micro_batches;
}

// Whole gradients need memory only around a unit's backward, unless micro-batches are added up in them.
inline bool has_temporary_grads(const ShardingOptions& options, int64_t shards) {
  const bool adds_up = options.reduce_every != 1 && options.micro_batches > 1;
  return options.shard_grads && shards > 1 && !adds_up;
}

}  // namespace drivetrain::sharding
