// What strategies that share state out have in common in `plan`: which ranks share a copy, how often gradients are
// summed, and what that costs. Main thread; only the options and the numbers of ranks are known yet.
#include "state_sharing_plan.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/not_recorded.h>
#include <drivetrain/toolkit/recorded_when_asked.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// Of a copy, as far as it is known.
int64_t sharing_ranks_of(const RunFacts& run) { return run.rest_ranks.value_or(1) * run.joined_ranks.value_or(1); }

// A sum in two steps, inside the groups and across them, has the bits of one tree only where the groups are whole
// branches of it and nothing is rounded in between. Parts of one sequence lie inside of the groups, but are summed
// after them.
void report_rounding(PlanContext& ctx, const std::string& key, int64_t size, at::ScalarType reduce) {
  const RunFacts& run = ctx.run();
  if (size == 1 || !run.rest_ranks.known() || size == sharing_ranks_of(run)) return;
  const bool branches = is_power_of_two(size) && run.joined_ranks.value_or(1) == 1;
  const bool rounds = c10::elementSize(reduce) < c10::elementSize(at::kFloat);
  if (branches && !rounds) return;
  const std::string between = rounds ? concat(" and are rounded to ", dtype_name(reduce), " in between") : "";
  if (run.joined_ranks.value_or(1) > 1) {
    ctx.cost(concat(key, " = ", size, ": sums over ranks follow the groups, then other axes (parts of a sequence)",
                    between, ", so last bits differ from other strategies'; shared over all ranks they do not"));
    return;
  }
  const char* remedy = !rounds ? "a power of two" : branches ? "sums in float32" : "sums in float32 and a power of two";
  ctx.cost(concat(key, " = ", size, ": sums over ranks follow the groups", between,
                  ", so last bits differ from other strategies'; with ", remedy, " they do not"));
}

void claim_groups(PlanContext& ctx, int64_t size) {
  ctx.claim_axis("dp", size, PlanContext::Reads::other_rows, PlanContext::kDataPlace);
  ctx.claim_axis("replica", PlanContext::kRest, PlanContext::Reads::other_rows, PlanContext::kReplicaPlace);
}

// Of the model on this rank, before they are sharded here.
double rank_elements(const PlanContext& ctx) {
  return static_cast<double>(ctx.model().parameters) * ctx.run().rank_share.value_or(1);
}

// Those of them that have gradients and state.
double trained_elements(const PlanContext& ctx) {
  const double held = ctx.run().rank_share.value_or(1);
  return static_cast<double>(ctx.model().parameters) * ctx.run().rank_trained.value_or(held);
}

// Bytes under a class of memory, by what is held and how it is cut.
class MemoryPlan {
 public:
  MemoryPlan(PlanContext& ctx, int64_t shard_ranks) : ctx_(ctx), shard_ranks_(shard_ranks) {}

  void whole(MemoryClass of, const std::string& what, at::ScalarType type) { part(of, what, type, 1); }
  void cut(MemoryClass of, const std::string& what, at::ScalarType type) { part(of, what, type, shard_ranks_); }
  void cut_on_host(MemoryClass of, const std::string& what, at::ScalarType type) {
    ctx_.host_memory(of, name(what, type, shard_ranks_), bytes(of, type, shard_ranks_));
  }
  void part(MemoryClass of, const std::string& what, at::ScalarType type, int64_t ranks) {
    ctx_.memory(of, name(what, type, ranks), bytes(of, type, ranks));
  }

 private:
  static std::string name(const std::string& what, at::ScalarType type, int64_t ranks) {
    return concat(what, ", ", dtype_name(type), ranks > 1 ? concat(", 1/", ranks) : "");
  }
  double bytes(MemoryClass of, at::ScalarType type, int64_t ranks) const {
    const bool of_trained = of == MemoryClass::gradients || of == MemoryClass::optimizer;
    return (of_trained ? trained_elements(ctx_) : rank_elements(ctx_)) * static_cast<double>(c10::elementSize(type)) /
           static_cast<double>(ranks);
  }

  PlanContext& ctx_;
  const int64_t shard_ranks_;
};

}  // namespace

bool StateSharing::divides(PlanContext& ctx, const std::string& key, int64_t size) const {
  const RunFacts& run = ctx.run();
  if (!run.rest_ranks.known()) return true;  // the next round will tell
  const int64_t ranks = run.rest_ranks;
  const std::string taken = run.taken_ranks.value_or("");
  if (ranks % size == 0) return true;
  const bool all = ranks == run.world_size;
  const std::string which = all             ? " of this run"
                            : taken.empty() ? concat(" that the mesh's other axes leave of ", run.world_size)
                                            : concat(" left by ", taken, " of ", run.world_size);
  ctx.refuse(concat(key, " = ", size, " does not divide the ", ranks, ranks == 1 ? " rank" : " ranks", which,
                    ". Use one of ", divisors_text(ranks), ", or start a multiple of ", size * (run.world_size / ranks),
                    " ranks"));
  return false;
}

int64_t StateSharing::sharing_ranks(const PlanContext& ctx) { return sharing_ranks_of(ctx.run()); }

int64_t StateSharing::share_nothing(PlanContext& ctx) {
  ctx.claim_axis("dp", PlanContext::kRest, PlanContext::Reads::other_rows, PlanContext::kDataPlace);
  options_.replica_axes = {"dp"};
  replica_ranks_ = sharing_ranks(ctx);
  return shard_ranks_ = 1;
}

int64_t StateSharing::share_over_all(PlanContext& ctx) {
  ctx.claim_axis("dp", PlanContext::kRest, PlanContext::Reads::other_rows, PlanContext::kDataPlace);
  options_.shard_axes = {"dp"};
  replica_ranks_ = 1;
  return shard_ranks_ = sharing_ranks(ctx);
}

int64_t StateSharing::share_over_groups(PlanContext& ctx, const std::string& key, int64_t size) {
  if (!divides(ctx, key, size)) return share_over_all(ctx);
  claim_groups(ctx, size);
  options_.shard_axes = {"dp"};
  options_.replica_axes = {"replica"};
  report_rounding(ctx, key, size, services_.dtypes.reduce);
  replica_ranks_ = sharing_ranks(ctx) / size;
  return shard_ranks_ = size;
}

int64_t StateSharing::share_over_nested_groups(PlanContext& ctx, const std::string& key, int64_t size) {
  if (!divides(ctx, key, size)) return share_over_all(ctx);
  claim_groups(ctx, size);
  options_.shard_axes = {"dp", "replica"};
  replica_ranks_ = 1;
  return shard_ranks_ = sharing_ranks(ctx);
}

int64_t StateSharing::share_with_second_copy(PlanContext& ctx, const std::string& key, int64_t size) {
  if (!divides(ctx, key, size)) return share_over_all(ctx);
  options_.backward_axes = {"dp"};
  second_ranks_ = size;
  ctx.offer(concat(toolkit::kNotRecorded, key, " = ", size,
                   " has a second copy, and which one a gather reads depends on the gathers before it; leave it out"));
  return share_over_nested_groups(ctx, key, size);
}

void StateSharing::choose_sums(PlanContext& ctx, std::optional<int64_t> section_reduce_every, int64_t usual) {
  ShardingOptions& s = options_;
  s.micro_batches = std::max<int64_t>(ctx.run().accumulation.value_or(1), 1);
  s.reduce_every = section_reduce_every.value_or(ctx.run().reduce_every.value_or(shard_ranks_ > 1 ? usual : 0));
  const int64_t added = std::min(s.reduce_every == 0 ? s.micro_batches : s.reduce_every, s.micro_batches);
  if (s.shard_grads && shard_ranks_ > 1 && added > 1)
    ctx.cost(concat("reduce_every = ", s.reduce_every, " adds up ", added,
                    " micro-batches before their gradients are summed over ranks: every rank holds whole gradients"));
}

void StateSharing::plan_memory(PlanContext& ctx) const {
  const Dtypes& types = services_.dtypes;
  const ShardingOptions& s = options_;
  const bool cut_values = s.shard_values && shard_ranks_ > 1, host_values = holds_values_on_host();
  MemoryPlan hold(ctx, shard_ranks_);
  if (host_values)
    hold.cut_on_host(MemoryClass::parameters, "parameters on the host", types.param);
  else if (cut_values)
    hold.cut(MemoryClass::parameters, "parameters", types.param);
  else
    hold.whole(MemoryClass::parameters, "parameters", types.param);
  if (second_ranks_ > 0) hold.part(MemoryClass::buffers, "second copy for backward", types.param, second_ranks_);
  const bool temporary = sharding::has_temporary_grads(s, shard_ranks_);
  if (!temporary) hold.whole(MemoryClass::gradients, "gradients", types.grad);
  if (temporary || sharding::sums_several_times(s))
    hold.cut(MemoryClass::gradients, temporary ? "gradients" : "sums of gradients", types.grad);
  if (s.offload_state) {
    hold.cut_on_host(MemoryClass::gradients, "gradients on the host", types.grad);
    hold.cut_on_host(MemoryClass::optimizer, "masters on the host", types.master);
  } else if (types.master != types.param || host_values) {
    hold.cut(MemoryClass::optimizer, "masters", types.master);
  }
  plan_updates(ctx, trained_elements(ctx) / static_cast<double>(shard_ranks_));
  if (!ctx.run().training) return;
  plan_traffic(ctx);
  plan_host_copies(ctx);
}

void StateSharing::plan_updates(PlanContext& ctx, double elements) const {
  if (options_.offload_state)
    ctx.updates_on_host(elements, /*to_device=*/!holds_values_on_host());
  else
    ctx.updates(elements);
}

// What FlatUnit, ValueGathers and the optimizer copy. The last sum of gradients is the one that leaves the device.
void StateSharing::plan_host_copies(PlanContext& ctx) const {
  using Beside = HostTraffic::Beside;
  const ShardingOptions& s = options_;
  const Dtypes& types = services_.dtypes;
  const auto bytes_of = [&](double elements, at::ScalarType type) {
    return elements / static_cast<double>(shard_ranks_) * static_cast<double>(c10::elementSize(type));
  };
  const auto bytes = [&](at::ScalarType type) { return bytes_of(trained_elements(ctx), type); };
  const bool host_values = holds_values_on_host();
  const auto beside = [&](Beside computation) { return s.pinned ? computation : Beside::nothing; };
  if (s.offload_state) ctx.host_traffic({"gradients to the host", bytes(types.grad), 1, beside(Beside::backward)});
  if (s.offload_state != host_values)
    // From the host a piece is sent while the next one is updated; to it copies follow the kernels on their stream.
    ctx.host_traffic({s.offload_state ? "new values from the host" : "new values to the host", bytes(types.param), 1,
                      s.offload_state ? beside(Beside::update) : Beside::nothing});
  if (!host_values) return;
  const bool ahead = s.overlap && (s.prefetch > 0 || s.prefetch_units > 0);
  const int64_t all = gathers(ctx), backward = all > s.micro_batches && second_ranks_ == 0 ? s.micro_batches : 0;
  const int64_t forward = std::min(all, s.micro_batches);
  const auto gathered = [&](const char* what, int64_t times, Beside computation) {
    if (times > 0)
      ctx.host_traffic({what, bytes_of(rank_elements(ctx), types.param) * static_cast<double>(times), times,
                        ahead ? beside(computation) : Beside::nothing});
  };
  gathered("values from the host for forward passes", forward, Beside::forward);
  gathered("values from the host for backward passes", backward, Beside::backward);
}

// Bytes sent per step: what ring algorithms move, whatever the communicator does.
void StateSharing::plan_traffic(PlanContext& ctx) const {
  const ShardingOptions& s = options_;
  const auto parts = [](int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); };
  const auto times = [](int64_t n) { return n == 1 ? std::string() : concat(", ", n, " times"); };
  const int64_t sums = sharding::sums_several_times(s) ? (s.micro_batches + s.reduce_every - 1) / s.reduce_every : 1;
  const double grads = trained_elements(ctx) * static_cast<double>(c10::elementSize(services_.dtypes.reduce) * sums);
  if (shard_ranks_ > 1) ctx.traffic("dp", concat("gradients summed and cut", times(sums)), parts(shard_ranks_) * grads);
  if (replica_ranks_ > 1)
    ctx.traffic(s.replica_axes.front(), concat("gradients summed", times(sums)),
                2 * parts(replica_ranks_) * grads / static_cast<double>(shard_ranks_));
  if (shard_ranks_ == 1) return;
  ctx.traffic("dp", concat("values gathered", times(gathers(ctx))), gathered_bytes(ctx));
}

int64_t StateSharing::gathers(const PlanContext& ctx) const {
  const ShardingOptions& s = options_;
  if (!s.shard_values) return 1;
  const double held = rank_elements(ctx);  // the first unit waits for all others twice
  if (held > 0 && static_cast<double>(s.reuse_distance) >= 2 * held) return 1;
  return s.micro_batches * (s.release_after_forward ? 2 : 1);
}

// A gather for backward may have a nearer copy. Values that are whole everywhere are gathered where they were updated.
double StateSharing::gathered_bytes(const PlanContext& ctx) const {
  const double elements = options_.shard_values ? rank_elements(ctx) : trained_elements(ctx);
  const auto sent = [&](int64_t ranks, int64_t times) {
    const double bytes = elements * static_cast<double>(c10::elementSize(services_.dtypes.param));
    return bytes * static_cast<double>((ranks - 1) * times) / static_cast<double>(ranks);
  };
  if (second_ranks_ == 0) return sent(shard_ranks_, gathers(ctx));
  const int64_t times = gathers(ctx), backward = times > 1 ? options_.micro_batches : 0;
  return sent(shard_ranks_, times - backward) + sent(second_ranks_, backward);
}

void StateSharing::plan_gathers(PlanContext& ctx) const {
  if (!options_.shard_values || shard_ranks_ == 1 || options_.micro_batches == 1) return;
  const std::string figure = formatted(", %.3g GB sent by each rank", gathered_bytes(ctx) / 1e9);
  ctx.cost(concat("gathers every unit ", gathers(ctx), " times per step", ctx.model().parameters > 0 ? figure : "",
                  ctx.run().device == "cpu" ? ", unless the ranks share its memory" : ""));
}

// Where something is in the way, whoever knows the option that asks for it has said so (not_recorded.h).
void StateSharing::plan_recording(PlanContext& ctx) const {
  if (options_.offload_state || options_.offload_values || second_ranks_ > 0) return;
  if (options_.overlap && shard_ranks_ > 1)
    ctx.offer(toolkit::kRecordedWhenAsked);
  else
    ctx.capturable();
}

}  // namespace drivetrain
