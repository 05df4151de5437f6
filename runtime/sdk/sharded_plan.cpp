// What strategies that share state out have in common in `plan`: which ranks share a copy, how often gradients are
// summed, and what that costs. Main thread; only the options and the numbers of ranks are known yet.
#include "sdk/sharded_plan.h"

#include <algorithm>

#include <drivetrain/error.h>

#include "sdk/dtype_name.h"

namespace drivetrain {
namespace {

constexpr int kDpPlace = 2, kReplicaPlace = 3;  // neighbours share a copy, see PlanContext::Claim

std::string divisors_of(int64_t n) {
  std::string text;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return text;
}

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// A sum in two steps, inside the groups and across them, has the bits of one tree only where the groups are whole
// branches of it and nothing is rounded in between.
void say_whether_bits_differ(PlanContext& ctx, const std::string& key, int64_t size, at::ScalarType reduce) {
  if (size == 1 || size == ctx.run().world_size) return;
  const bool branches = is_power_of_two(size), rounds = c10::elementSize(reduce) < c10::elementSize(at::kFloat);
  if (branches && !rounds) return;
  const std::string between = rounds ? concat(" and are rounded to ", dtype_name(reduce), " in between") : "";
  const char* remedy = !rounds ? "a power of two" : branches ? "sums in float32" : "sums in float32 and a power of two";
  ctx.cost(concat(key, " = ", size, ": sums over ranks follow the groups", between,
                  ", so last bits differ from other strategies'; with ", remedy, " they do not"));
}

void claim_groups(PlanContext& ctx, int64_t size) {
  ctx.claim_axis("dp", size, true, kDpPlace);
  ctx.claim_axis("replica", PlanContext::kRest, true, kReplicaPlace);
}

// Bytes under a class of memory, by what is held and how it is cut.
class MemoryPlan {
 public:
  MemoryPlan(PlanContext& ctx, int64_t shard_ranks) : ctx_(ctx), shard_ranks_(shard_ranks) {}

  void whole(MemoryClass of, const std::string& what, at::ScalarType type) { part(of, what, type, 1); }
  void cut(MemoryClass of, const std::string& what, at::ScalarType type) { part(of, what, type, shard_ranks_); }
  void part(MemoryClass of, const std::string& what, at::ScalarType type, int64_t ranks) {
    const double all = static_cast<double>(ctx_.model().parameters) * static_cast<double>(c10::elementSize(type));
    const std::string share = ranks > 1 ? concat(", 1/", ranks) : "";
    ctx_.memory(of, concat(what, ", ", dtype_name(type), share), all / static_cast<double>(ranks));
  }

 private:
  PlanContext& ctx_;
  const int64_t shard_ranks_;
};

}  // namespace

bool ShardedDataParallel::divides(PlanContext& ctx, const std::string& key, int64_t size) const {
  const int64_t world = ctx.run().world_size;
  if (world % size == 0) return true;
  ctx.refuse(concat(key, " = ", size, " does not divide the ", world, world == 1 ? " rank" : " ranks",
                    " of this run. Use one of ", divisors_of(world), ", or start a multiple of ", size, " ranks"));
  return false;
}

int64_t ShardedDataParallel::share_nothing(PlanContext& ctx) {
  ctx.claim_axis("dp", PlanContext::kRest, true, kDpPlace);
  options_.replica_axes = {"dp"};
  return shard_ranks_ = 1;
}

int64_t ShardedDataParallel::share_over_all(PlanContext& ctx) {
  ctx.claim_axis("dp", PlanContext::kRest, true, kDpPlace);
  options_.shard_axes = {"dp"};
  return shard_ranks_ = ctx.run().world_size;
}

int64_t ShardedDataParallel::share_over_groups(PlanContext& ctx, const std::string& key, int64_t size) {
  if (!divides(ctx, key, size)) return share_over_all(ctx);
  claim_groups(ctx, size);
  options_.shard_axes = {"dp"};
  options_.replica_axes = {"replica"};
  say_whether_bits_differ(ctx, key, size, services_.dtypes.reduce);
  return shard_ranks_ = size;
}

int64_t ShardedDataParallel::share_with_second_copy(PlanContext& ctx, const std::string& key, int64_t size) {
  if (!divides(ctx, key, size)) return share_over_all(ctx);
  claim_groups(ctx, size);
  options_.shard_axes = {"dp", "replica"};
  options_.backward_axes = {"dp"};
  second_ranks_ = size;
  return shard_ranks_ = ctx.run().world_size;
}

void ShardedDataParallel::choose_sums(PlanContext& ctx, std::optional<int64_t> section_reduce_every, int64_t usual) {
  ShardingOptions& s = options_;
  s.micro_batches = std::max<int64_t>(ctx.run().accumulation, 1);
  s.reduce_every = section_reduce_every.value_or(ctx.run().reduce_every.value_or(shard_ranks_ > 1 ? usual : 0));
  const int64_t added = std::min(s.reduce_every == 0 ? s.micro_batches : s.reduce_every, s.micro_batches);
  if (s.shard_grads && shard_ranks_ > 1 && added > 1)
    ctx.cost(concat("reduce_every = ", s.reduce_every, " adds up ", added,
                    " micro-batches before their gradients are summed over ranks: every rank holds whole gradients"));
}

void ShardedDataParallel::plan_memory(PlanContext& ctx) const {
  const Dtypes& types = services_.dtypes;
  const ShardingOptions& s = options_;
  const bool cut_values = s.shard_values && shard_ranks_ > 1, host_values = cut_values && s.offload_values;
  MemoryPlan hold(ctx, shard_ranks_);
  if (cut_values)
    hold.cut(MemoryClass::parameters, host_values ? "parameters on the host" : "parameters", types.param);
  else
    hold.whole(MemoryClass::parameters, "parameters", types.param);
  if (second_ranks_ > 0) hold.part(MemoryClass::buffers, "second copy for backward", types.param, second_ranks_);
  const bool lent = sharding::lends_grads(s, shard_ranks_);
  if (!lent) hold.whole(MemoryClass::gradients, "gradients", types.grad);
  if (lent || sharding::sums_several_times(s))
    hold.cut(MemoryClass::gradients, lent ? "gradients" : "sums of gradients", types.grad);
  if (s.offload_state) {
    hold.cut(MemoryClass::gradients, "gradients on the host", types.grad);
    hold.cut(MemoryClass::optimizer, "masters on the host", types.master);
  } else if (types.master != types.param || host_values) {
    hold.cut(MemoryClass::optimizer, "masters", types.master);
  }
  ctx.updates(static_cast<double>(ctx.model().parameters) / static_cast<double>(shard_ranks_));
}

void ShardedDataParallel::plan_gathers(PlanContext& ctx) const {
  if (!options_.shard_values || shard_ranks_ == 1 || options_.micro_batches == 1) return;
  ctx.cost(concat("gathers every unit ", options_.micro_batches * (options_.release_after_forward ? 2 : 1),
                  " times per step", ctx.run().device == "cpu" ? ", unless the ranks share its memory" : ""));
}

// What a recorded step may not hold: work of the host, choices by what earlier steps left, gathers that cross its end.
void ShardedDataParallel::plan_recording(PlanContext& ctx, const std::string& at_once) const {
  std::vector<std::string> hindrances;
  if (options_.offload_state || options_.offload_values)
    hindrances.push_back("what lives in the host's memory is copied or updated there (keep it on the device)");
  if (second_ranks_ > 0)
    hindrances.push_back("which copy a gather reads depends on the gathers before it (leave out the second copy)");
  if (options_.overlap && shard_ranks_ > 1)
    hindrances.push_back(concat("gathers of new values overlap the next forward",
                                at_once.empty() ? "" : concat(" (", at_once, " waits for them)")));
  if (hindrances.empty()) return ctx.capturable();
  if (ctx.run().device == "cpu" || !ctx.run().training) return;
  std::string why;
  for (const std::string& h : hindrances) why += (why.empty() ? "" : "; ") + h;
  ctx.cost("steps are not recorded and replayed: " + why);
}

}  // namespace drivetrain
