// The section `activation_checkpointing` with DeepSpeed's names, and what is ours. Keys that change nothing are nullopt
// unless the file has them, so that only those are named.
#pragma once

#include <cstdint>
#include <optional>

#include <drivetrain/options.h>
#include <drivetrain/plan_context.h>

namespace drivetrain::full_recompute {

struct FullOptions {
  double fraction = 1;
  bool cpu_checkpointing = false;
  bool partition_activations = false;
  std::optional<bool> contiguous_memory_optimization, synchronize_checkpoint_boundary, profile;
  std::optional<int64_t> number_checkpoints;
};

OptionTable full_table();

// Names the keys that were given and change nothing, each once.
void name_idle_keys(const FullOptions& options, PlanContext& ctx);

}  // namespace drivetrain::full_recompute
