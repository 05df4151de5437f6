// ZeRO's stages: what each cuts over the ranks, and what follows from it in a step. Every rank holds 1/N of the
// optimizer's state under all of them.
//
// Stage 1 (P_os in the paper): gradients and values are whole. Gradients of a step are summed to the part that the rank
// updates; updated parts are gathered, while the next forward goes on.
// Stage 2 (P_os+g): whole gradients exist from a unit's backward to their sum, which comes after each micro-batch.
// Stage 3 (P_os+g+p): whole values exist from before a unit's forward, or backward, until after it. They are gathered
// ahead of their use, in the order of the step's program.
#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

#include "zero.h"

namespace drivetrain {

void Zero::cut_by_stage(int64_t stage) {
  options_.shard_grads = stage >= 2;
  options_.shard_values = stage == 3;
}

// Stages 1 and 2 wait for the gather that follows the update; stage 3 gathers, and looks ahead.
void Zero::before_forward(const Visit& visit, StepContext& ctx) { values().use(visit, ctx); }
void Zero::before_backward(const Visit& visit, StepContext& ctx) { values().use(visit, ctx); }

// Stage 3 frees what is cut.
void Zero::after_forward(const Visit& visit, StepContext& ctx) { values().done(visit, ctx); }
void Zero::values_done(const Visit& visit, StepContext& ctx) { values().done(visit, ctx); }

// Under stages 2 and 3 the slots have memory only during a backward.
void Zero::before_grads(const Visit& visit, StepContext&) { grads().make_room(visit); }

// One reduce-scatter per bucket leaves this rank the sum of its part.
void Zero::after_backward(const Visit& visit, StepContext&) { grads().begin_complete(visit); }

// Stages 1 and 2 gather new values at once; stage 3 when a unit needs them.
void Zero::after_update(Trainables& chunk, StepContext&) { values().updated(chunk); }

}  // namespace drivetrain
