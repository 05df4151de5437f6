// What each option asks of the base class, and over which ranks.
#include "plan.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

std::string divisors(int64_t n) {
  std::string text;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return text;
}

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

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

bool divides(int64_t group, PlanContext& ctx) {
  const int64_t world = ctx.run().world_size;
  if (world % group == 0) return true;
  ctx.refuse(concat("shard_group_size = ", group, " does not divide the ", world, world == 1 ? " rank" : " ranks",
                    " of this run. Use one of ", divisors(world), ", or start a multiple of ", group, " ranks"));
  return false;
}

void choose_ranks(const Wanted& w, FsdpPlan& plan, PlanContext& ctx) {
  const bool grouped = w.shard && w.group > 0 && divides(w.group, ctx);
  ctx.claim_axis("dp", grouped ? w.group : PlanContext::kRest, true, 2);
  if (grouped) ctx.claim_axis("replica", PlanContext::kRest, true, 3);
  if (grouped) plan.sharding.replica_axes = {"replica"};
  (w.shard ? plan.sharding.shard_axes : plan.sharding.replica_axes).push_back("dp");
  plan.shard_ranks = !w.shard ? 1 : grouped ? w.group : ctx.run().world_size;
  if (grouped && !is_power_of_two(w.group) && w.group < ctx.run().world_size)
    ctx.cost(concat("shard_group_size = ", w.group,
                    ": sums over ranks follow the groups, so last bits differ from other strategies'; with a power of "
                    "two they do not"));
}

void choose_sums(const FsdpOptions& o, ShardingOptions& s, PlanContext& ctx) {
  s.micro_batches = std::max<int64_t>(ctx.run().accumulation, 1);
  s.reduce_every = o.reduce_every.value_or(ctx.run().reduce_every.value_or(1));
  const int64_t added = std::min(s.reduce_every == 0 ? s.micro_batches : s.reduce_every, s.micro_batches);
  if (s.shard_grads && added > 1)
    ctx.cost(concat("reduce_every = ", s.reduce_every, " adds up ", added,
                    " micro-batches before their gradients are summed over ranks: every rank holds whole gradients"));
}

void say_what_gathers_cost(const ShardingOptions& s, PlanContext& ctx) {
  if (s.micro_batches == 1) return;
  const int64_t times = s.micro_batches * (s.release_after_forward ? 2 : 1);
  ctx.cost(concat("gathers every unit ", times, " times per step",
                  ctx.run().device == "cpu" ? ", unless the ranks share its memory" : ""));
}

// --- mixed precision

std::string plain_dtype(std::string name) {
  if (name.rfind("torch.", 0) == 0) name.erase(0, 6);
  if (name == "fp32" || name == "float") return "float32";
  if (name == "bf16") return "bfloat16";
  if (name == "fp16" || name == "half") return "float16";
  return name;
}

std::string dtype_name(at::ScalarType type) {
  if (type == at::kFloat) return "float32";
  if (type == at::kBFloat16) return "bfloat16";
  return type == at::kHalf ? "float16" : c10::toString(type);
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

void judge_precision(const MixedPrecisionPolicy& policy, const Dtypes& types, PlanContext& ctx) {
  const std::string param = plain_dtype(policy.param_dtype.value_or(dtype_name(types.param)));
  const std::string reduce = plain_dtype(policy.reduce_dtype.value_or(dtype_name(types.reduce)));
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

FsdpPlan plan_fsdp(const FsdpOptions& options, const Services& services, PlanContext& ctx) {
  judge_precision(options.mixed_precision, services.dtypes, ctx);
  const Wanted w = wanted(options, services, ctx);
  FsdpPlan plan;
  ShardingOptions& s = plan.sharding;
  s.shard_grads = s.shard_values = w.shard;
  s.release_after_forward = w.reshard;
  s.prefetch_units = options.prefetch;
  s.prefetch = 0;  // counted in units
  s.persistent = options.param_persistence_threshold;
  choose_ranks(w, plan, ctx);
  choose_sums(options, s, ctx);
  if (plan.shard_ranks > 1) say_what_gathers_cost(s, ctx);
  return plan;
}

}  // namespace drivetrain
