// Keys of DeepSpeed's that change nothing here. What asks for what happens anyway is taken without a word.
#include "plan.h"

namespace drivetrain {
namespace {

// `quiet`: the value that says what happens anyway; null: there is none.
struct IdleKey {
  const char* key;
  Value quiet;
  const char* why;
};

const std::vector<IdleKey>& always_idle() {
  static const std::vector<IdleKey> keys = {
      {"contiguous_gradients", true, "the gradients of a bucket always lie together"},
      {"reduce_scatter", true,
       "each rank gets the sum of its part by one reduce-scatter; an all-reduce would give the same bits"},
      {"use_multi_rank_bucket_allreduce", true, "a bucket is summed by one reduce-scatter"},
      {"allgather_partitions", true, "a bucket is gathered by one all-gather"},
      {"round_robin_gradients", false, "every rank owns an equal slice of every bucket"},
      {"ignore_unused_parameters", true, "a parameter without a gradient counts as zero"},
      {"cpu_offload_use_pin_memory", Value(), "DeepSpeed does not read it either; see offload_optimizer.pin_memory"},
      {"load_from_fp32_weights", true, "masters come from float32 weights"},
      {"elastic_checkpoint", false, "there are no checkpoints in this version"},
      {"pipeline_loading_checkpoint", false, "there are no checkpoints in this version"},
      {"enable_sanity_checks", Value(), "what is cheap is always checked"},
      {"override_module_apply", true, "there are no Python modules"},
      {"memory_efficient_linear", true, "whole weights are not kept for backward"},
      {"save_muon_momentum_buffer_in_memory", false, "there is no Muon in this version"},
      {"stage3_gather_16bit_weights_on_model_save", true, "saved weights are always whole, and float32"},
      {"stage3_module_granularity_threshold", 0, "gathered is what a unit of the model needs"},
      {"stage3_use_all_reduce_for_fetch_params", false, "values are gathered; an all-reduce would give the same ones"},
      {"log_trace_cache_warnings", false, "the order of uses is known and not traced"},
      {"leaf_module", Value(), "gathered is what a unit of the model needs"},
      {"mics_hierarchical_params_gather", false, "a gather is one collective"},
  };
  return keys;
}

const std::vector<IdleKey>& idle_below_stage3() {
  static const char* const why = "it is for stage 3; here every rank holds all parameters";
  static const std::vector<IdleKey> keys = {
      {"stage3_prefetch_bucket_size", Value(), why},        {"stage3_param_persistence_threshold", Value(), why},
      {"stage3_max_live_parameters", Value(), why},         {"stage3_max_reuse_distance", Value(), why},
      {"stage3_model_persistence_threshold", Value(), why}, {"stage3_allgather_sequential", false, why},
  };
  return keys;
}

struct RefusedKey {
  const char* key;
  Value accepted;
  const char* why;
};

const std::vector<RefusedKey>& refused_keys() {
  static const std::vector<RefusedKey> keys = {
      {"zero_quantized_weights", false, "values are gathered in the type that units compute in"},
      {"zero_quantized_nontrainable_weights", false, "frozen parameters keep their type"},
      {"zero_quantized_gradients", false, "gradients travel in the type that they are added up in"},
      {"zeropp_loco_param", Value(), "there are no quantised gradients whose error it would feed back"},
      {"zenflow", Value(), "every gradient is applied in its own step"},
      {"legacy_stage1", false, "DeepSpeed removed it too"},
  };
  return keys;
}

class Judge {
 public:
  Judge(const ZeroOptions& options, PlanContext& ctx) : given_(zero_table().to_value(&options)), ctx_(ctx) {}

  void name_idle(const std::vector<IdleKey>& keys) {
    for (const IdleKey& k : keys) {
      const Value* value = given(k.key);
      if (value && !(*value == k.quiet)) ctx_.no_effect(k.key, k.why);
    }
  }

  void refuse(const std::vector<RefusedKey>& keys) {
    for (const RefusedKey& k : keys) {
      const Value* value = given(k.key);
      if (value && !(*value == k.accepted))
        ctx_.refuse(concat(k.key, " = ", value->to_json(), " is not in this version: ", k.why, "; remove it"));
    }
  }

 private:
  const Value* given(const std::string& key) const { return not_null(given_, key); }
  static const Value* not_null(const Value& object, const std::string& key) {
    const Value* value = object.find(key);
    return value && !value->is_null() ? value : nullptr;
  }

  const Value given_;
  PlanContext& ctx_;
};

}  // namespace

void judge_keys(const ZeroOptions& options, PlanContext& ctx) {
  const int64_t stage = options.stage.value_or(0);
  Judge judge(options, ctx);
  judge.refuse(refused_keys());
  judge.name_idle(always_idle());
  if (stage < 3) judge.name_idle(idle_below_stage3());
  if (stage == 3 && options.allgather_bucket_size)
    ctx.no_effect("allgather_bucket_size", "at stage 3 the buckets have reduce_bucket_size elements");
}

}  // namespace drivetrain
