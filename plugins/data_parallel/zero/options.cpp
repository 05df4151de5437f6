// DeepSpeed's table of zero_optimization; pages and defaults as in its source, not its documentation, where they
// differ.
#include "options.h"

namespace drivetrain {
namespace {

using Z = ZeroOptions;

OptionTable offload_optimizer_table() {
  using O = OffloadOptimizer;
  return table<O>()
      .field("device", &O::device, "where optimizer state lives: none is the run's device")
      .one_of({"none", "cpu", "nvme"})
      .field("nvme_path", &O::nvme_path, "folder for device nvme")
      .field("buffer_count", &O::buffer_count, "buffers between host and disk")
      .at_least(0)
      .field("pin_memory", &O::pin_memory, "page-locked host memory")
      .field("pipeline_read", &O::pipeline_read, "read from disk beside the update")
      .field("pipeline_write", &O::pipeline_write, "write to disk beside the update")
      .field("fast_init", &O::fast_init, "write the first state to disk by the fast path")
      .field("ratio", &O::ratio, "share of the updates done on the CPU")
      .range(0, 1)
      .field("super_offload", &O::super_offload, "update on the CPU before the norm is known")
      .field("cpuadam_cores_perc", &O::cpuadam_cores_perc, "share of the cores that update under super_offload")
      .range(0, 1);
}

OptionTable offload_param_table() {
  using O = OffloadParam;
  return table<O>()
      .field("device", &O::device, "where parameters live between their uses: none is the run's device")
      .one_of({"none", "cpu", "nvme"})
      .field("nvme_path", &O::nvme_path, "folder for device nvme")
      .field("buffer_count", &O::buffer_count, "staging buffers")
      .at_least(0)
      .field("buffer_size", &O::buffer_size, "elements per staging buffer")
      .at_least(0)
      .field("max_in_cpu", &O::max_in_cpu, "elements kept in host memory under nvme")
      .at_least(0)
      .field("pin_memory", &O::pin_memory, "page-locked host memory");
}

// A stage-3 key, which DeepSpeed also takes without its prefix.
template <class T>
void stage3(TableBuilder<Z>& t, const char* name, std::optional<T> Z::*member, const char* help) {
  t.field(concat("stage3_", name), member, help).alias(name);
}

void add_sharing(TableBuilder<Z>& t) {
  t.field("stage", &Z::stage, "1: optimizer state is shared out, 2: gradients too, 3: parameters too; 0: off")
      .range(0, 3);
  t.field(
      "group_size", &Z::group_size,
      "neighbouring ranks that share one copy of the state; -1 and null: all, 1: nothing is shared out, 0: refused");
  t.at_least(-1);
  t.field("mics_shard_size", &Z::mics_shard_size, "group_size under its name in MiCS (stage 3); -1: off").at_least(-1);
  t.field("zero_hpz_partition_size", &Z::zero_hpz_partition_size,
          "stage 3: backward gathers from a second copy, cut over so many neighbouring ranks; 1: off");
  t.at_least(0);
  t.field("reduce_every", &Z::reduce_every,
          "micro-batches added up before their gradients are summed over ranks, 0: all of a step; null: the top-level "
          "key, else 1 at stages 2 and 3, and 0 at stage 1 and where nothing is shared out");
  t.at_least(0);
}

void add_buckets(TableBuilder<Z>& t) {
  t.field("reduce_bucket_size", &Z::reduce_bucket_size, "elements per bucket of gradients; null: 5e8").at_least(0);
  t.field("allgather_bucket_size", &Z::allgather_bucket_size,
          "elements per gather at stages 1 and 2, the smaller of both counts; null: 5e8");
  t.at_least(0);
  t.field("sub_group_size", &Z::sub_group_size, "elements that the optimizer updates in one call; null: 1e9")
      .at_least(0);
  t.field(
      "overlap_comm", &Z::overlap_comm,
      "gradients are summed and values gathered beside other work; false: each sum and each gather is waited for at "
      "once, and none is begun ahead; null: true");
  t.field("contiguous_gradients", &Z::contiguous_gradients, "gradients of a bucket lie together: always so");
  t.field("reduce_scatter", &Z::reduce_scatter, "each rank gets the sum of its part only: always so");
  t.field("use_multi_rank_bucket_allreduce", &Z::use_multi_rank_bucket_allreduce,
          "without effect: one reduce-scatter per bucket");
  t.field("allgather_partitions", &Z::allgather_partitions, "without effect, as in DeepSpeed");
  t.field("round_robin_gradients", &Z::round_robin_gradients, "without effect: parts are equal slices of each bucket");
  t.field("ignore_unused_parameters", &Z::ignore_unused_parameters,
          "a parameter without a gradient counts as zero: always so");
}

void add_stage3(TableBuilder<Z>& t) {
  stage3(t, "prefetch_bucket_size", &Z::prefetch_bucket_size, "elements gathered ahead of their use; null: 5e7"),
      t.at_least(0);
  stage3(t, "param_persistence_threshold", &Z::param_persistence_threshold,
         "parameters of up to so many elements stay whole; null: 1e5"),
      t.at_least(0);
  stage3(t, "max_live_parameters", &Z::max_live_parameters, "elements that are whole at one time; null: 1e9"),
      t.at_least(0);
  stage3(t, "max_reuse_distance", &Z::max_reuse_distance,
         "kept whole if used again after at most so many other elements; null: the prefetch size"),
      t.at_least(0);
  stage3(t, "model_persistence_threshold", &Z::model_persistence_threshold,
         "most elements that stay whole: 0, or all of the model");
  t.at_least(0);
  stage3(t, "module_granularity_threshold", &Z::module_granularity_threshold,
         "without effect: gathered is what a unit of the model needs");
  t.at_least(0);
  stage3(t, "allgather_sequential", &Z::allgather_sequential, "nothing is gathered ahead");
  stage3(t, "use_all_reduce_for_fetch_params", &Z::use_all_reduce_for_fetch_params,
         "without effect: values are gathered");
  stage3(t, "gather_16bit_weights_on_model_save", &Z::gather_16bit_weights_on_model_save,
         "without effect: saved weights are whole");
  t.alias("stage3_gather_fp16_weights_on_model_save").alias("gather_fp16_weights_on_model_save");
  t.field("log_trace_cache_warnings", &Z::log_trace_cache_warnings,
          "without effect: the order of uses is known, not traced");
  t.field("leaf_module", &Z::leaf_module, "without effect: gathered is what a unit of the model needs");
  t.field("mics_hierarchical_params_gather", &Z::mics_hierarchical_params_gather,
          "without effect: a gather is one collective");
}

void add_rest(TableBuilder<Z>& t) {
  t.group("offload_optimizer", &Z::offload_optimizer, offload_optimizer_table(), "optimizer state on the host");
  t.group("offload_param", &Z::offload_param, offload_param_table(), "parameters on the host");
  t.field("cpu_offload", &Z::cpu_offload, "old name: true is offload_optimizer.device cpu");
  t.field("cpu_offload_param", &Z::cpu_offload_param, "old name: true is offload_param.device cpu");
  t.field("cpu_offload_use_pin_memory", &Z::cpu_offload_use_pin_memory, "without effect, as in DeepSpeed");
  t.field("load_from_fp32_weights", &Z::load_from_fp32_weights, "masters come from float32 weights: always so");
  t.field("elastic_checkpoint", &Z::elastic_checkpoint, "without effect: there are no checkpoints in this version");
  t.field("pipeline_loading_checkpoint", &Z::pipeline_loading_checkpoint,
          "without effect: there are no checkpoints in this version");
  t.field("enable_sanity_checks", &Z::enable_sanity_checks, "without effect: what is cheap is always checked");
  t.field("override_module_apply", &Z::override_module_apply, "without effect: there is no Python");
  t.field("memory_efficient_linear", &Z::memory_efficient_linear,
          "whole weights are never kept for backward: always so");
  t.field("save_muon_momentum_buffer_in_memory", &Z::save_muon_momentum_buffer_in_memory,
          "without effect: there is no Muon");
  t.field("legacy_stage1", &Z::legacy_stage1, "only false, as in DeepSpeed");
  t.field("zero_quantized_weights", &Z::zero_quantized_weights, "only false");
  t.field("zero_quantized_nontrainable_weights", &Z::zero_quantized_nontrainable_weights, "only false");
  t.field("zero_quantized_gradients", &Z::zero_quantized_gradients, "only false");
  t.field("zeropp_loco_param", &Z::zeropp_loco_param, "only null");
  t.field("zenflow", &Z::zenflow, "only null");
  t.refused("grad_hooks", "DeepSpeed documents it and rejects it; remove it");
}

// State that is not shared out stays on the device: a section that is off must not seem to save its memory.
void refuse_offload_without_stage(const Z& o) {
  const auto refuse_for = [](const std::optional<std::string>& device, const std::optional<bool>& old, const char* key,
                             const char* old_key) {
    const bool named = device && *device != "none";
    if (named || old.value_or(false))
      throw fail(
          ErrorCode::config, named ? concat(key, ".device = \"", *device, "\"") : concat(old_key, " = true"),
          " asks for offload without the stage: found stage 0, at which the section is off\n   set \"stage\" to 1, "
          "2 or 3 (parameters: 3), or remove it");
  };
  refuse_for(o.offload_optimizer.device, o.cpu_offload, "offload_optimizer", "cpu_offload");
  refuse_for(o.offload_param.device, o.cpu_offload_param, "offload_param", "cpu_offload_param");
}

// What the stage uses and the file leaves out.
void fill(Z& o) {
  const int64_t stage = o.stage.value_or(0);
  if (stage == 0) return o.stage ? refuse_offload_without_stage(o) : void();
  const auto standard = [](auto& option, auto value) {
    if (!option) option = value;
  };
  standard(o.reduce_bucket_size, 500'000'000);
  standard(o.sub_group_size, 1'000'000'000);
  standard(o.overlap_comm, true);
  if (stage < 3) return standard(o.allgather_bucket_size, 500'000'000);
  if (shares_nothing(o)) return;
  standard(o.prefetch_bucket_size, o.allgather_sequential.value_or(false) || !*o.overlap_comm ? 0 : 50'000'000);
  standard(o.param_persistence_threshold, 100'000);
  standard(o.max_live_parameters, 1'000'000'000);
  standard(o.max_reuse_distance, *o.prefetch_bucket_size);  // what is nearer would be fetched again at once
}

}  // namespace

OptionTable zero_table() {
  TableBuilder<Z> t;
  add_sharing(t), add_buckets(t), add_stage3(t), add_rest(t);
  return t.finish(fill);
}

}  // namespace drivetrain
