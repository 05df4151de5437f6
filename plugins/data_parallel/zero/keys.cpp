// Keys of DeepSpeed's that change nothing here. What asks for what happens anyway is taken without a word.
#include <algorithm>

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

// Of stage 3 only, for what is gathered and how long it stays.
const std::vector<std::string>& gather_keys() {
  static const std::vector<std::string> keys = {
      "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "stage3_max_live_parameters",
      "stage3_max_reuse_distance",   "stage3_model_persistence_threshold", "stage3_allgather_sequential"};
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

// A section counts as given if anything in it is.
bool is_given(const Value& value) {
  if (!value.is_object()) return !value.is_null();
  const auto& members = value.members();
  return std::any_of(members.begin(), members.end(), [](const Value::Member& m) { return is_given(m.value); });
}

class Judge {
 public:
  Judge(const ZeroOptions& options, PlanContext& ctx) : given_(zero_table().to_value(&options)), ctx_(ctx) {}

  void name_idle() {
    for (const IdleKey& k : always_idle()) {
      const Value* value = given_key(given_, k.key);
      if (value && !(*value == k.quiet)) ctx_.no_effect(k.key, k.why);
    }
  }

  void name_gathers(const std::string& why) {
    for (const std::string& key : gather_keys())
      if (given_key(given_, key)) ctx_.no_effect(key, why);
  }

  // Nothing is shared out: of all keys only how often gradients are summed still counts.
  void name_all() {
    for (const Value::Member& m : given_.members())
      if (m.key != "stage" && m.key != "reduce_every" && is_given(m.value))
        ctx_.no_effect(m.key, "stage is 0 and every rank holds everything");
  }

  void refuse() {
    for (const RefusedKey& k : refused_keys()) {
      const Value* value = given_key(given_, k.key);
      if (value && !(*value == k.accepted))
        ctx_.refuse(concat(k.key, " = ", value->to_json(), " is not in this version: ", k.why, "; remove it"));
    }
  }

 private:
  const Value given_;
  PlanContext& ctx_;
};

}  // namespace

void judge_keys(const ZeroOptions& options, PlanContext& ctx) {
  const int64_t stage = options.stage.value_or(0);
  Judge judge(options, ctx);
  if (stage == 0) return options.stage ? judge.name_all() : void();
  judge.refuse();
  judge.name_idle();
  if (stage < 3)
    judge.name_gathers("it is for stage 3; here every rank holds all parameters");
  else if (shares_nothing(options))
    judge.name_gathers("groups of 1 share nothing out; every rank holds all parameters");
  if (stage == 3 && options.allgather_bucket_size)
    ctx.no_effect("allgather_bucket_size", "at stage 3 the buckets have reduce_bucket_size elements");
}

}  // namespace drivetrain
