#include "options.h"

namespace drivetrain::full_recompute {

OptionTable full_table() {
  using O = FullOptions;
  return table<O>()
      .field("fraction", &O::fraction, "share of a rank's blocks that run again, counted from its first block")
      .range(0, 1)
      .field("cpu_checkpointing", &O::cpu_checkpointing, "inputs of those blocks wait in the host's memory")
      .field(
          "partition_activations", &O::partition_activations,
          "each tensor-parallel rank keeps a share of every input: only by the sequence parallelism of tensor_parallel")
      .field("contiguous_memory_optimization", &O::contiguous_memory_optimization,
             "without effect: memory of a step is reused as it is")
      .field("number_checkpoints", &O::number_checkpoints, "without effect: see fraction")
      .at_least(0)
      .field("synchronize_checkpoint_boundary", &O::synchronize_checkpoint_boundary,
             "without effect: there is nothing to wait for")
      .field("profile", &O::profile, "without effect: see drivetrain bench step");
}

void name_idle_keys(const FullOptions& options, PlanContext& ctx) {
  if (options.contiguous_memory_optimization.value_or(false))
    ctx.no_effect("contiguous_memory_optimization",
                  "a step's memory is reused by the next one as it is, so nothing is broken up");
  if (options.number_checkpoints)
    ctx.no_effect("number_checkpoints", "it counts buffers of DeepSpeed's; how many blocks run again is \"fraction\"");
  if (options.synchronize_checkpoint_boundary.value_or(false))
    ctx.no_effect("synchronize_checkpoint_boundary", "a block runs again in order with the device's other work");
  if (options.profile.value_or(false))
    ctx.no_effect("profile", "`drivetrain bench step` times forward and backward, with and without the section");
}

}  // namespace drivetrain::full_recompute
