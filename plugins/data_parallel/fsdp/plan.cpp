// What each option asks of the base class, and over which ranks.
#include <drivetrain/error.h>
#include <drivetrain/toolkit/dtype_name.h>

#include "fsdp.h"

namespace drivetrain {
namespace {

// What a sharding_strategy stands for, or the options themselves where none is named.
struct Wanted {
  bool shard = true, reshard = true;
  int64_t group = 0;  // 0: all ranks
};

Wanted wanted(const FsdpOptions& o, const Services& services, PlanContext& ctx) {
  const std::string name = o.sharding_strategy.value_or("");
  const bool hybrid = name == "HYBRID_SHARD" || name == "_HYBRID_SHARD_ZERO2";
  Wanted w;
  w.shard = name != "NO_SHARD";
  w.reshard = name != "SHARD_GRAD_OP" && name != "_HYBRID_SHARD_ZERO2";
  w.group = o.shard_group_size.value_or(hybrid ? services.local_size : 0);
  const bool contradicts = !name.empty() && w.shard && o.reshard_after_forward && *o.reshard_after_forward != w.reshard;
  if (contradicts)
    ctx.refuse(concat("sharding_strategy \"", name, "\" and reshard_after_forward = ",
                      *o.reshard_after_forward ? "true" : "false", " contradict each other; remove one of them"));
  if (!name.empty() && !hybrid && o.shard_group_size)
    ctx.refuse(concat("sharding_strategy \"", name, "\" and shard_group_size = ", *o.shard_group_size,
                      " contradict each other; groups are HYBRID_SHARD, or leave sharding_strategy out"));
  w.reshard = o.reshard_after_forward.value_or(w.reshard);
  return w;
}

void name_idle(const FsdpOptions& o, PlanContext& ctx) {
  const std::string why = concat(o.shard_group_size == 1 ? "shard_group_size is 1" : "sharding_strategy is NO_SHARD",
                                 ": every rank holds all parameters");
  if (o.reshard_after_forward) ctx.no_effect("reshard_after_forward", why);
  if (o.prefetch) ctx.no_effect("prefetch", why);
  if (o.param_persistence_threshold) ctx.no_effect("param_persistence_threshold", why);
}

// --- mixed precision

// The policy's type by its plain name, as it stands where it is none of ours; the run's where the policy has none.
std::string plain_dtype(const std::optional<std::string>& asked, at::ScalarType run) {
  const std::optional<at::ScalarType> type = asked ? dtype_of(*asked) : run;
  return type ? dtype_name(*type) : *asked;
}

std::string precision_for(const std::string& dtype) {
  if (dtype == "bfloat16") return "set \"bf16\": {\"enabled\": true} at the top level instead";
  if (dtype == "float16") return "set \"fp16\": {\"enabled\": true} at the top level instead";
  if (dtype == "float32") return "remove \"bf16\" or \"fp16\" at the top level instead";
  return "types are float32, bfloat16 and float16";
}

// The names that communication_data_type takes.
std::string short_name(const std::string& dtype) {
  if (dtype == "bfloat16") return "bf16";
  return dtype == "float16" ? "fp16" : "fp32";
}

void check_mixed_precision(const MixedPrecisionPolicy& policy, const Dtypes& types, PlanContext& ctx) {
  const std::string param = plain_dtype(policy.param_dtype, types.param);
  const std::string reduce = plain_dtype(policy.reduce_dtype, types.reduce);
  if (param != dtype_name(types.param))
    ctx.refuse(concat("mixed_precision.param_dtype is ", param, ", but units of this run compute in ",
                      dtype_name(types.param), "; ", precision_for(param)));
  if (reduce != dtype_name(types.reduce))
    ctx.refuse(concat("mixed_precision.reduce_dtype is ", reduce, ", but gradients of this run are summed in ",
                      dtype_name(types.reduce), "; set \"communication_data_type\": \"", short_name(reduce),
                      "\" at the top level instead"));
  if (policy.output_dtype)
    ctx.refuse(concat("mixed_precision.output_dtype = \"", *policy.output_dtype,
                      "\" is not in this version: activations have the type that units compute in; remove it"));
  if (policy.cast_forward_inputs) ctx.no_effect("mixed_precision.cast_forward_inputs", "a model's inputs are integers");
}

}  // namespace

void Fsdp::plan(PlanContext& ctx) {
  check_mixed_precision(section_.mixed_precision, services_.dtypes, ctx);
  if (shares_nothing(section_)) name_idle(section_, ctx);
  const Wanted w = wanted(section_, services_, ctx);
  options_.shard_grads = options_.shard_values = w.shard;
  options_.release_after_forward = w.reshard;
  options_.prefetch_units = section_.prefetch.value_or(0);
  options_.prefetch = 0;  // counted in units
  options_.persistent = section_.param_persistence_threshold.value_or(0);
  if (!w.shard)
    share_nothing(ctx);
  else if (w.group > 0)
    share_over_groups(ctx, "shard_group_size", w.group);
  else
    share_over_all(ctx);
  choose_sums(ctx, section_.reduce_every, 1);
  plan_gathers(ctx);
  plan_memory(ctx);
  plan_recording(ctx);
}

}  // namespace drivetrain
