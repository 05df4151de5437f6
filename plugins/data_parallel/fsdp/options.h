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
  std::optional<bool> reshard_after_forward;  // nothing: true, or what sharding_strategy says
  std::optional<std::string> sharding_strategy;
  std::optional<int64_t> shard_group_size, reduce_every;
  int64_t prefetch = 1;  // units
  int64_t param_persistence_threshold = 0;
  MixedPrecisionPolicy mixed_precision;
};

OptionTable fsdp_table();

}  // namespace drivetrain
