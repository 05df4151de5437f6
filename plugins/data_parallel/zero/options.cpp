// DeepSpeed's table of zero_optimization; pages and defaults as in its source, not its documentation, where they
// differ.
#include "options.h"

#include "key_rules.h"

namespace drivetrain {
namespace {

using Z = ZeroOptions;

constexpr const char* kNoDevice = "none as in Hugging Face's accelerate";

// The rules of Hugging Face's integration for sizes in elements.
Value square(const AutoFacts& facts) { return facts.hidden_size() * facts.hidden_size(); }
Value nine_tenths_of_square(const AutoFacts& facts) { return facts.hidden_size() * facts.hidden_size() * 9 / 10; }
Value ten_times(const AutoFacts& facts) { return 10 * facts.hidden_size(); }

OptionTable offload_optimizer_table() {
  using O = OffloadOptimizer;
  return table<O>()
      .field("device", &O::device, "where optimizer state lives: none is the run's device")
      .one_of({"none", "cpu", "nvme"})
      .automatic(kNoDevice, Value("none"))
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
      .automatic(kNoDevice, Value("none"))
      .field("nvme_path", &O::nvme_path, "folder for device nvme")
      .field("buffer_count", &O::buffer_count, "staging buffers")
      .at_least(0)
      .field("buffer_size", &O::buffer_size, "elements per staging buffer")
      .at_least(0)
      .field("max_in_cpu", &O::max_in_cpu, "elements kept in host memory under nvme")
      .at_least(0)
      .field("pin_memory", &O::pin_memory, "page-locked host memory");
}

// The table, and beside it what is said of keys that were given.
class ZeroTable {
 public:
  ZeroTable() { add_sharing(), add_buckets(), add_stage3(), add_offload(), add_rest(); }

  TableBuilder<Z> table;
  std::vector<KeyRule> rules;

 private:
  // A key that changes nothing; `quiet` asks for what happens anyway, null: no value does.
  template <class T>
  TableBuilder<Z>& idle(const std::string& key, T Z::*member, const Value& quiet, const std::string& why) {
    rules.push_back({KeyRule::Of::idle, key, quiet, why});
    return add(key, member, "without effect: " + why);
  }
  template <class T>
  void refused(const std::string& key, T Z::*member, const Value& accepted, const std::string& why) {
    rules.push_back({KeyRule::Of::refused, key, accepted, why});
    add(key, member, concat("only ", accepted.to_json(), ": ", why));
  }
  template <class T>
  TableBuilder<Z>& gathers(const std::string& key, T Z::*member, const std::string& help) {
    rules.push_back({KeyRule::Of::gathers, key, {}, {}});
    return add(key, member, help);
  }
  // DeepSpeed takes keys of stage 3 without their prefix, too.
  template <class T>
  TableBuilder<Z>& add(const std::string& key, T Z::*member, const std::string& help) {
    table.field(key, member, help);
    constexpr const char kPrefix[] = "stage3_";
    return key.rfind(kPrefix, 0) == 0 ? table.renamed(key.substr(sizeof kPrefix - 1), key) : table;
  }

  void add_sharing();
  void add_buckets();
  void add_stage3();
  void add_offload();
  void add_rest();
};

void ZeroTable::add_sharing() {
  add("stage", &Z::stage, "1: optimizer state is sharded, 2: gradients too, 3: parameters too; 0: off")
      .range(0, 3)
      .automatic("2 as in Hugging Face's accelerate", Value(2));
  add("group_size", &Z::group_size,
      "neighbouring ranks that share one copy of the state; -1 and null: all, 1: nothing is sharded, 0: refused")
      .at_least(-1);
  add("mics_shard_size", &Z::mics_shard_size, "group_size under its name in MiCS (stage 3); -1: off").at_least(-1);
  add("zero_hpz_partition_size", &Z::zero_hpz_partition_size,
      "stage 3: backward gathers from a second copy, cut over so many neighbouring ranks; 1: off")
      .at_least(0);
  add("reduce_every", &Z::reduce_every,
      "micro-batches added up before their gradients are summed over ranks, 0: all of a step; null: the top-level "
      "key, else 1 at stages 2 and 3, and 0 at stage 1 and where nothing is sharded")
      .at_least(0);
}

void ZeroTable::add_buckets() {
  add("reduce_bucket_size", &Z::reduce_bucket_size, "elements per bucket of gradients; null: 5e8")
      .at_least(0)
      .automatic("hidden_size * hidden_size", square);
  add("allgather_bucket_size", &Z::allgather_bucket_size,
      "elements per gather at stages 1 and 2, the smaller of both counts; null: 5e8")
      .at_least(0);
  add("sub_group_size", &Z::sub_group_size, "elements that the optimizer updates in one call; null: 1e9").at_least(0);
  add("overlap_comm", &Z::overlap_comm,
      "gradients are summed and values gathered beside other work; false: each sum and each gather is waited for at "
      "once, and none is begun ahead; null: true");
  idle("contiguous_gradients", &Z::contiguous_gradients, true, "the gradients of a bucket always lie together");
  idle("reduce_scatter", &Z::reduce_scatter, true,
       "each rank gets the sum of its part by one reduce-scatter; an all-reduce would give the same bits");
  idle("use_multi_rank_bucket_allreduce", &Z::use_multi_rank_bucket_allreduce, true,
       "a bucket is summed by one reduce-scatter");
  idle("allgather_partitions", &Z::allgather_partitions, true, "a bucket is gathered by one all-gather");
  idle("round_robin_gradients", &Z::round_robin_gradients, false, "every rank owns an equal slice of every bucket");
  idle("ignore_unused_parameters", &Z::ignore_unused_parameters, true, "a parameter without a gradient counts as zero");
}

void ZeroTable::add_stage3() {
  constexpr const char* kByUnit = "gathered is what a unit of the model needs";
  gathers("stage3_prefetch_bucket_size", &Z::prefetch_bucket_size, "elements gathered ahead of their use; null: 5e7")
      .at_least(0)
      .automatic("0.9 * hidden_size * hidden_size", nine_tenths_of_square);
  gathers("stage3_param_persistence_threshold", &Z::param_persistence_threshold,
          "parameters of up to so many elements stay whole; null: 1e5")
      .at_least(0)
      .automatic("10 * hidden_size", ten_times);
  gathers("stage3_max_live_parameters", &Z::max_live_parameters, "elements that are whole at one time; null: 1e9")
      .at_least(0);
  gathers("stage3_max_reuse_distance", &Z::max_reuse_distance,
          "kept whole if used again after at most so many other elements; null: the prefetch size")
      .at_least(0);
  gathers("stage3_model_persistence_threshold", &Z::model_persistence_threshold,
          "most elements that stay whole: 0, or all of the model")
      .at_least(0);
  idle("stage3_module_granularity_threshold", &Z::module_granularity_threshold, 0, kByUnit).at_least(0);
  gathers("stage3_allgather_sequential", &Z::allgather_sequential, "nothing is gathered ahead");
  idle("stage3_use_all_reduce_for_fetch_params", &Z::use_all_reduce_for_fetch_params, false,
       "values are gathered; an all-reduce would give the same ones");
  idle("stage3_gather_16bit_weights_on_model_save", &Z::gather_16bit_weights_on_model_save, true,
       "saved weights are always whole, and float32")
      .automatic("saved weights are always whole", Value(true));
  for (const char* old : {"stage3_gather_fp16_weights_on_model_save", "gather_fp16_weights_on_model_save"})
    table.renamed(old, "stage3_gather_16bit_weights_on_model_save");
  idle("log_trace_cache_warnings", &Z::log_trace_cache_warnings, false, "the order of uses is known and not traced");
  idle("leaf_module", &Z::leaf_module, {}, kByUnit);
  idle("mics_hierarchical_params_gather", &Z::mics_hierarchical_params_gather, false, "a gather is one collective");
}

void ZeroTable::add_offload() {
  table.group("offload_optimizer", &Z::offload_optimizer, offload_optimizer_table(), "optimizer state on the host");
  table.group("offload_param", &Z::offload_param, offload_param_table(), "parameters on the host");
  add("cpu_offload", &Z::cpu_offload, "old name: true is offload_optimizer.device cpu");
  add("cpu_offload_param", &Z::cpu_offload_param, "old name: true is offload_param.device cpu");
  idle("cpu_offload_use_pin_memory", &Z::cpu_offload_use_pin_memory, {},
       "DeepSpeed does not read it either; see offload_optimizer.pin_memory");
}

void ZeroTable::add_rest() {
  constexpr const char* kNoCheckpoints = "every checkpoint loads under any sharding";
  idle("load_from_fp32_weights", &Z::load_from_fp32_weights, true, "masters come from float32 weights");
  idle("elastic_checkpoint", &Z::elastic_checkpoint, false, kNoCheckpoints);
  idle("pipeline_loading_checkpoint", &Z::pipeline_loading_checkpoint, false, kNoCheckpoints);
  idle("enable_sanity_checks", &Z::enable_sanity_checks, {}, "what is cheap is always checked");
  idle("override_module_apply", &Z::override_module_apply, true, "there are no Python modules");
  idle("memory_efficient_linear", &Z::memory_efficient_linear, true, "whole weights are not kept for backward");
  idle("save_muon_momentum_buffer_in_memory", &Z::save_muon_momentum_buffer_in_memory, false,
       "the momentum of Muon is shared out as all state of the optimizer and stays in memory");
  refused("legacy_stage1", &Z::legacy_stage1, false, "DeepSpeed removed it too");
  refused("zero_quantized_weights", &Z::zero_quantized_weights, false,
          "values are gathered in the type that units compute in");
  refused("zero_quantized_nontrainable_weights", &Z::zero_quantized_nontrainable_weights, false,
          "frozen parameters keep their type");
  refused("zero_quantized_gradients", &Z::zero_quantized_gradients, false,
          "gradients travel in the type that they are added up in");
  refused("zeropp_loco_param", &Z::zeropp_loco_param, {},
          "there are no quantised gradients whose error it would feed back");
  refused("zenflow", &Z::zenflow, {}, "every gradient is applied in its own step");
  table.refused("grad_hooks", "DeepSpeed documents it and rejects it; remove it");
}

// What the stage uses and the file leaves out.
void fill(Z& o) {
  const int64_t stage = o.stage.value_or(0);
  if (stage == 0) return;
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

OptionTable zero_table() { return ZeroTable().table.finish(fill); }

const std::vector<KeyRule>& zero_key_rules() {
  static const std::vector<KeyRule> rules = ZeroTable().rules;
  return rules;
}

}  // namespace drivetrain
