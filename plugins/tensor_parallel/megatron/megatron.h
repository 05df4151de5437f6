// Tensor parallelism after Megatron-LM: claims the axis, checks that the model can be divided over it, and decorates
// the layers.
#pragma once

#include <optional>
#include <string>

#include <drivetrain/services.h>
#include <drivetrain/tensor_parallel.h>

#include "layers.h"

namespace drivetrain::megatron {

// DeepSpeed's second place for the size: "tp": {"tp_size": 2}.
struct AutoTp {
  std::optional<int64_t> tp_size, tp_grain_size;
};

struct MegatronOptions {
  int64_t size = 1;
  bool sequence_parallel = false, keep_gathered = false;
  int64_t make_vocab_size_divisible_by = 128;
  AutoTp autotp;
  // What DeepSpeed's section has besides, which changes nothing here.
  std::optional<std::string> dtype, preset_model;
  std::optional<bool> tp_overlap_comm, keep_module_on_host, replace_with_kernel_inject;
  Value injection_policy_tuple, partition_config;

  int64_t ranks() const { return size > 1 ? size : 1; }
};

// Refuses what cannot be divided, and says what the plugin sends and holds.
void plan(const MegatronOptions& options, PlanContext& ctx);
// Positions are cut in training only: texts that grow by one token cannot be cut evenly.
bool cuts_positions(const MegatronOptions& options, const RunFacts& run);

// This rank's share, in order, of positions that all `ranks` would have. Error(config) if they do not divide.
std::vector<RowRange> even_share(const std::vector<RowRange>& positions, int64_t ranks, int64_t index);

}  // namespace drivetrain::megatron
