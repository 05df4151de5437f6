// What each key asks of the base class, and over which ranks.
#include "plan.h"

#include <algorithm>

#include <drivetrain/error.h>

#include "zero.h"

namespace drivetrain {
namespace {

// A number of ranks under the name of the key that asks for it. 0: all ranks.
struct Groups {
  std::string key;
  int64_t size = 0;
};

Groups asked_groups(const ZeroOptions& o, PlanContext& ctx) {
  const int64_t own = std::max<int64_t>(o.group_size.value_or(0), 0),
                mics = std::max<int64_t>(o.mics_shard_size.value_or(0), 0);
  if (o.group_size == 0)
    ctx.refuse("group_size = 0 is no number of ranks. Use -1 or leave it out: all ranks share one copy; 1: none do");
  if (mics > 0 && *o.stage < 3)
    ctx.refuse(concat("mics_shard_size = ", mics, " is for stage 3; found stage ", *o.stage,
                      ". Use \"group_size\": ", mics, " for groups that share optimizer state"));
  if (mics > 0 && o.group_size && own != mics)
    ctx.refuse(concat("group_size = ", *o.group_size, " and mics_shard_size = ", mics,
                      " mean the same and differ; remove one of them"));
  return own > 0 ? Groups{"group_size", own} : Groups{"mics_shard_size", mics};
}

// The largest tensor that the facts tell of: the embedding or a matrix of the MLP.
int64_t large_parameter(const ModelFacts& model) {
  return std::max(model.vocab_size, model.ffn_hidden_size.value_or(0)) * model.hidden_size;
}

}  // namespace

void Zero::plan(PlanContext& ctx) {
  if (!section_.stage)
    ctx.no_effect("zero_optimization",
                  "it has no \"stage\", and the default is 0: 1 shares out the optimizer's state, 2 gradients too, 3 "
                  "parameters too");
  report_keys(section_, ctx);
  if (section_.stage.value_or(0) > 0) {
    share_state(ctx);
  } else {  // only where a type asks for it: whole copies, as without the section
    share_nothing(ctx);
    choose_sums(ctx, section_.reduce_every, 0);
  }
  plan_memory(ctx);
  plan_recording(ctx);
}

void Zero::share_state(PlanContext& ctx) {
  const int64_t stage = *section_.stage;
  cut_by_stage(stage);
  choose_ranks(ctx);
  choose_sums(ctx, section_.reduce_every, stage == 1 ? 0 : 1);
  choose_buckets();
  choose_offload(section_, options_, ctx);
  if (options_.offload_values && shard_ranks() == 1)
    ctx.refuse(
        "offload_param needs parameters that are sharded over two ranks or more in this version; start more, or "
        "remove it");
  if (stage == 3 && !shares_nothing(section_)) choose_values(ctx);
}

void Zero::choose_ranks(PlanContext& ctx) {
  const Groups groups = asked_groups(section_, ctx);
  const Groups second{"zero_hpz_partition_size", section_.zero_hpz_partition_size.value_or(1)};
  if (second.size > 1 && *section_.stage < 3) {
    ctx.no_effect(second.key, kStage3Only);
  } else if (second.size > 1 && groups.size > 0) {
    ctx.refuse(concat(second.key, " = ", second.size, " shares the state out over all ranks, ", groups.key, " = ",
                      groups.size, " over groups; remove one of them"));
  } else if (second.size > 1 && second.size == sharing_ranks(ctx)) {
    ctx.no_effect(second.key, "all ranks are in one such group");
  } else if (second.size > 1) {
    share_with_second_copy(ctx, second.key, second.size);
    return;
  }
  if (groups.size > 0)
    share_over_groups(ctx, groups.key, groups.size);
  else
    share_over_all(ctx);
}

void Zero::choose_buckets() {
  options_.bucket = std::max<int64_t>(*section_.reduce_bucket_size, 1);
  if (*section_.stage < 3) options_.bucket = std::clamp<int64_t>(*section_.allgather_bucket_size, 1, options_.bucket);
  options_.update_chunk = std::max<int64_t>(*section_.sub_group_size, 1);
  options_.overlap = *section_.overlap_comm;
}

void Zero::choose_values(PlanContext& ctx) {
  ShardingOptions& s = options_;
  s.prefetch = *section_.prefetch_bucket_size;
  s.persistent = *section_.param_persistence_threshold;
  s.live = *section_.max_live_parameters;
  s.reuse_distance = *section_.max_reuse_distance;
  const bool sequential = section_.allgather_sequential.value_or(false);
  if (s.prefetch > 0 && (sequential || !s.overlap)) {
    ctx.no_effect("stage3_prefetch_bucket_size",
                  sequential ? "stage3_allgather_sequential is true and nothing is gathered ahead"
                             : "overlap_comm is false and every gather is waited for at once");
    s.prefetch = 0;
  }
  const int64_t parameters = ctx.model().parameters, most = section_.model_persistence_threshold.value_or(parameters);
  if (most == 0) s.persistent = 0;
  if (most > 0 && most < parameters && s.persistent > 0)
    ctx.refuse(concat("stage3_model_persistence_threshold = ", most,
                      " is not in this version: what stays whole is limited per parameter; "
                      "use 0, or lower stage3_param_persistence_threshold"));
  if (shard_ranks() > 1) report_unsharded_parameters(ctx);
}

void Zero::report_unsharded_parameters(PlanContext& ctx) const {
  const ShardingOptions& s = options_;
  const ModelFacts& model = ctx.model();
  if (model.hidden_size > 0 && large_parameter(model) <= s.persistent)
    return ctx.cost(concat("parameters of up to stage3_param_persistence_threshold = ", s.persistent,
                           " elements stay whole: here that is all large ones; lower it to share them out"));
  const auto held = static_cast<int64_t>(static_cast<double>(model.parameters) * ctx.run().rank_share.value_or(1));
  if (held > 0 && s.reuse_distance >= held)
    return ctx.cost(concat("stage3_max_reuse_distance = ", s.reuse_distance, " is not less than a rank's ", held,
                           " parameters: all stay whole from their forward to their backward"));
  plan_gathers(ctx);
}

}  // namespace drivetrain
