// A step under fully sharded data parallelism: a unit's flat parameters are gathered before its forward and its
// backward, with those of coming units on their way, and freed behind it (section 3.2 and 3.3 of the paper); its
// gradients are summed by one reduce-scatter, which leaves every rank its part.
#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

#include "fsdp.h"

namespace drivetrain {

void Fsdp::before_forward(const Visit& visit, StepContext& ctx) {
  values().use(visit);
  values().prefetch(ctx);
}
void Fsdp::before_backward(const Visit& visit, StepContext& ctx) {
  values().use(visit);
  values().prefetch(ctx);
}

// reshard_after_forward decides whether values stay from forward to backward.
void Fsdp::after_forward(const Visit& visit, StepContext& ctx) { values().done(visit, ctx); }
void Fsdp::values_done(const Visit& visit, StepContext& ctx) { values().done(visit, ctx); }

void Fsdp::before_grads(const Visit& visit, StepContext&) { grads().make_room(visit.unit); }
void Fsdp::after_backward(const Visit& visit, StepContext&) {
  for (sharding::Bucket* bucket : grads().complete(visit)) grads().begin(*bucket, visit.last);
}

// Only NO_SHARD and ranks of one host keep whole values, which are then gathered here.
void Fsdp::after_update(Trainables& chunk, StepContext&) { values().updated(*chunk.front().param); }

}  // namespace drivetrain
