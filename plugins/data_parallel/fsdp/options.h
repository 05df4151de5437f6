// Options in the words of PyTorch's FSDP: `fully_shard` first, the older wrapper's sharding_strategy for those who know
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <drivetrain/options.h>

namespace drivetrain {

struct MixedPrecisionPolicy {
  std::optional<std::string> param_dtype, reduce_dtype, output_dtype;
  std::optional<bool> cast_forward_inputs;
};

struct FsdpOptions {
  std::optional<bool> reshard_after_forward;  // nothing: true, or what sharding_strategy says, or nothing is sharded
  std::optional<std::string> sharding_strategy;
  std::optional<int64_t> shard_group_size, reduce_every;
  // Nothing: the standard, or that nothing is sharded, see shares_nothing; filled in by the table.
  std::optional<int64_t> prefetch;  // units
  std::optional<int64_t> param_persistence_threshold;
  MixedPrecisionPolicy mixed_precision;
};

OptionTable fsdp_table();

// Asked for in so many words: every rank holds everything.
inline bool shares_nothing(const FsdpOptions& o) {
  return o.sharding_strategy == "NO_SHARD" || o.shard_group_size == 1;
}

}  // namespace drivetrain
