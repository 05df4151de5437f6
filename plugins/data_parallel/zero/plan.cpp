// What each key asks of the base class, and over which ranks.
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

// A number of ranks under the name of the key that asks for it. 0: all ranks.
struct Groups {
  std::string key;
  int64_t size = 0;
};

Groups asked_groups(const ZeroOptions& o, PlanContext& ctx) {
  const int64_t own = std::max<int64_t>(o.group_size.value_or(0), 0),
                mics = std::max<int64_t>(o.mics_shard_size.value_or(0), 0);
  if (mics > 0 && *o.stage < 3)
    ctx.refuse(concat("mics_shard_size = ", mics, " is for stage 3; found stage ", *o.stage,
                      ". Use \"group_size\": ", mics, " for groups that share optimizer state"));
  if (mics > 0 && o.group_size && own != mics)
    ctx.refuse(concat("group_size = ", *o.group_size, " and mics_shard_size = ", mics,
                      " mean the same and differ; remove one of them"));
  return own > 0 ? Groups{"group_size", own} : Groups{"mics_shard_size", mics};
}

bool divides(const Groups& groups, PlanContext& ctx) {
  const int64_t world = ctx.run().world_size;
  if (world % groups.size == 0) return true;
  ctx.refuse(concat(groups.key, " = ", groups.size, " does not divide the ", world, world == 1 ? " rank" : " ranks",
                    " of this run. Use one of ", divisors(world), ", or start a multiple of ", groups.size, " ranks"));
  return false;
}

void over_all(ZeroPlan& plan, PlanContext& ctx) {
  ctx.claim_axis("dp", PlanContext::kRest, true, 2);
  plan.sharding.shard_axes = {"dp"};
  plan.shard_ranks = ctx.run().world_size;
}

void over_groups(const Groups& groups, ZeroPlan& plan, PlanContext& ctx) {
  ctx.claim_axis("dp", groups.size, true, 2);
  ctx.claim_axis("replica", PlanContext::kRest, true, 3);
  plan.sharding.shard_axes = {"dp"};
  plan.sharding.replica_axes = {"replica"};
  plan.shard_ranks = groups.size;
  if (!is_power_of_two(groups.size) && groups.size < ctx.run().world_size)
    ctx.cost(concat(groups.key, " = ", groups.size,
                    ": sums over ranks follow the groups, so last bits differ from other strategies'; with a power of "
                    "two they do not"));
}

// The state is shared out over all ranks, and backward gathers from a second copy within a group of neighbours.
void with_second_copy(const Groups& groups, ZeroPlan& plan, PlanContext& ctx) {
  ctx.claim_axis("dp", groups.size, true, 2);
  ctx.claim_axis("replica", PlanContext::kRest, true, 3);
  plan.sharding.shard_axes = {"dp", "replica"};
  plan.sharding.backward_axes = {"dp"};
  plan.second_ranks = groups.size;
  plan.shard_ranks = ctx.run().world_size;
}

void choose_ranks(const ZeroOptions& o, ZeroPlan& plan, PlanContext& ctx) {
  const Groups groups = asked_groups(o, ctx);
  const Groups second{"zero_hpz_partition_size", o.zero_hpz_partition_size.value_or(1)};
  if (second.size > 1 && *o.stage < 3) {
    ctx.no_effect(second.key, "it is for stage 3; here every rank holds all parameters");
  } else if (second.size > 1 && groups.size > 0) {
    ctx.refuse(concat(second.key, " = ", second.size, " shares the state out over all ranks, ", groups.key, " = ",
                      groups.size, " over groups; remove one of them"));
  } else if (second.size > 1 && divides(second, ctx)) {
    if (second.size < ctx.run().world_size) return with_second_copy(second, plan, ctx);
    ctx.no_effect(second.key, "all ranks are in one such group");
  }
  if (groups.size > 0 && divides(groups, ctx)) return over_groups(groups, plan, ctx);
  over_all(plan, ctx);
}

void choose_sums(const ZeroOptions& o, ShardingOptions& s, PlanContext& ctx) {
  const int64_t micro_batches = std::max<int64_t>(ctx.run().accumulation, 1);
  const int64_t usual = ctx.run().reduce_every.value_or(*o.stage == 1 ? 0 : 1);
  s.micro_batches = micro_batches;
  s.reduce_every = o.reduce_every.value_or(usual);
  s.bucket = std::max<int64_t>(*o.reduce_bucket_size, 1);
  if (*o.stage < 3) s.bucket = std::clamp<int64_t>(*o.allgather_bucket_size, 1, s.bucket);
  s.update_chunk = std::max<int64_t>(*o.sub_group_size, 1);
  s.overlap = *o.overlap_comm;
  const int64_t added = std::min(s.reduce_every == 0 ? micro_batches : s.reduce_every, micro_batches);
  if (s.shard_grads && added > 1)
    ctx.cost(concat("reduce_every = ", s.reduce_every, " adds up ", added,
                    " micro-batches before their gradients are summed over ranks: every rank holds whole gradients, as "
                    "at stage 1"));
}

// The largest tensor that the facts tell of: the embedding or a matrix of the MLP.
int64_t large_parameter(const ModelFacts& model) {
  return std::max(model.vocab_size, model.ffn_hidden_size) * model.hidden_size;
}

void choose_values(const ZeroOptions& o, ShardingOptions& s, PlanContext& ctx) {
  s.prefetch = *o.prefetch_bucket_size;
  s.persistent = *o.param_persistence_threshold;
  s.live = *o.max_live_parameters;
  s.reuse_distance = *o.max_reuse_distance;
  const int64_t parameters = ctx.model().parameters;
  if (o.allgather_sequential.value_or(false) && s.prefetch > 0) {
    ctx.no_effect("stage3_prefetch_bucket_size", "stage3_allgather_sequential is true and nothing is gathered ahead");
    s.prefetch = 0;
  }
  const int64_t most = o.model_persistence_threshold.value_or(parameters);
  if (most == 0) s.persistent = 0;
  if (most > 0 && most < parameters && s.persistent > 0)
    ctx.refuse(concat("stage3_model_persistence_threshold = ", most,
                      " is not in this version: what stays whole is limited per parameter; "
                      "use 0, or lower stage3_param_persistence_threshold"));
}

// Said where values are cut over more than one rank.
void say_what_gathers_cost(const ShardingOptions& s, PlanContext& ctx) {
  const ModelFacts& model = ctx.model();
  if (model.hidden_size > 0 && large_parameter(model) <= s.persistent)
    return ctx.cost(concat("parameters of up to stage3_param_persistence_threshold = ", s.persistent,
                           " elements stay whole: here that is all large ones; lower it to share them out"));
  if (model.parameters > 0 && s.reuse_distance >= model.parameters)
    return ctx.cost(concat("stage3_max_reuse_distance = ", s.reuse_distance, " is not less than the model's ",
                           model.parameters, " parameters: all stay whole from their forward to their backward"));
  if (s.micro_batches > 1)
    ctx.cost(concat("gathers every unit ", 2 * s.micro_batches, " times per step",
                    ctx.run().device == "cpu" ? ", unless the ranks share its memory" : ""));
}

// Stage 0 has a section of its own only where a type asks for it: whole copies, as without the section.
ZeroPlan plan_whole(const ZeroOptions& o, PlanContext& ctx) {
  ZeroPlan plan;
  ctx.claim_axis("dp", PlanContext::kRest, true, 2);
  plan.sharding.replica_axes = {"dp"};
  plan.sharding.micro_batches = std::max<int64_t>(ctx.run().accumulation, 1);
  plan.sharding.reduce_every = o.reduce_every.value_or(ctx.run().reduce_every.value_or(0));
  return plan;
}

}  // namespace

ZeroPlan plan_zero(const ZeroOptions& options, PlanContext& ctx) {
  if (!options.stage)
    ctx.refuse(
        "the section has no \"stage\": 1 shares out the optimizer's state, 2 gradients too, 3 parameters too, 0 "
        "nothing");
  if (options.stage.value_or(0) == 0) return plan_whole(options, ctx);
  judge_keys(options, ctx);
  ZeroPlan plan;
  plan.sharding.shard_grads = *options.stage >= 2;
  plan.sharding.shard_values = *options.stage == 3;
  choose_ranks(options, plan, ctx);
  choose_sums(options, plan.sharding, ctx);
  choose_offload(options, plan.sharding, ctx);
  if (plan.sharding.offload_values && plan.shard_ranks == 1)
    ctx.refuse(
        "offload_param needs parameters that are shared out over two ranks or more in this version; start more, or "
        "remove it");
  if (*options.stage < 3) return plan;
  choose_values(options, plan.sharding, ctx);
  if (plan.shard_ranks > 1) say_what_gathers_cost(plan.sharding, ctx);
  return plan;
}

}  // namespace drivetrain
