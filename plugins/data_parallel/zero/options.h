// The section `zero_optimization`, with DeepSpeed's names. Sizes in elements. What the file does not say is nullopt, so
// that a key that changes nothing is named only if it was given; what the stage uses is filled in by the table, the
// rest stays nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <drivetrain/options.h>

namespace drivetrain {

struct OffloadOptimizer {
  std::optional<std::string> device, nvme_path;
  std::optional<int64_t> buffer_count;
  std::optional<bool> pin_memory, pipeline_read, pipeline_write, fast_init, super_offload;
  std::optional<double> ratio, cpuadam_cores_perc;
};

struct OffloadParam {
  std::optional<std::string> device, nvme_path;
  std::optional<int64_t> buffer_count, buffer_size, max_in_cpu;
  std::optional<bool> pin_memory;
};

struct ZeroOptions {
  std::optional<int64_t> stage;
  std::optional<int64_t> reduce_bucket_size, allgather_bucket_size, sub_group_size, reduce_every;
  std::optional<int64_t> group_size, mics_shard_size, zero_hpz_partition_size;
  std::optional<int64_t> prefetch_bucket_size, param_persistence_threshold, max_live_parameters, max_reuse_distance;
  std::optional<int64_t> model_persistence_threshold, module_granularity_threshold;
  std::optional<bool> overlap_comm, allgather_sequential;
  OffloadOptimizer offload_optimizer;
  OffloadParam offload_param;
  std::optional<bool> cpu_offload, cpu_offload_param, cpu_offload_use_pin_memory;  // DeepSpeed's old names

  // Read and never acted on: see key_rules.h.
  std::optional<bool> contiguous_gradients, reduce_scatter, use_multi_rank_bucket_allreduce, allgather_partitions;
  std::optional<bool> load_from_fp32_weights, elastic_checkpoint, round_robin_gradients, ignore_unused_parameters,
      legacy_stage1;
  std::optional<bool> save_muon_momentum_buffer_in_memory, enable_sanity_checks, pipeline_loading_checkpoint;
  std::optional<bool> override_module_apply, memory_efficient_linear, gather_16bit_weights_on_model_save;
  std::optional<bool> use_all_reduce_for_fetch_params, log_trace_cache_warnings, mics_hierarchical_params_gather;
  std::optional<bool> zero_quantized_weights, zero_quantized_nontrainable_weights, zero_quantized_gradients;
  Value leaf_module, zenflow, zeropp_loco_param;
};

OptionTable zero_table();

// Groups of one rank: every rank holds everything, whatever the stage.
inline bool shares_nothing(const ZeroOptions& o) { return o.group_size == 1 || o.mics_shard_size == 1; }

}  // namespace drivetrain
