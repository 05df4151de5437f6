// Fully sharded data parallelism: every rank holds a part of each unit's parameters, gradients and optimizer state;
// whole values exist around a unit's forward and backward only. Main thread.
//
// Source: Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", section 3 (flat
// parameters, hybrid sharding, prefetching). We differ: the order of uses is known before the first step, and the sum
// over ranks has a fixed order.
#pragma once

#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

#include "options.h"

namespace drivetrain {

class Fsdp : public StateSharing {
 public:
  using Options = FsdpOptions;
  static OptionTable options() { return fsdp_table(); }

  Fsdp(const Options& options, const Services& services) : StateSharing(services), section_(options) {}

  // Claims the axes and says what is refused, expensive or without effect.
  void plan(PlanContext& ctx) override;

  // A unit's flat parameters are gathered before its forward and its backward, with those of coming units on their way.
  void before_forward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void before_backward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  // They are freed behind both; reshard_after_forward decides whether they stay from forward to backward.
  void after_forward(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void values_done(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  // One reduce-scatter sums the unit's gradients and leaves every rank its part.
  void before_grads(const Visit& visit, StepContext&) override { grads().make_room(visit); }
  void after_backward(const Visit& visit, StepContext&) override { grads().begin_complete(visit); }
  // Only NO_SHARD and ranks of one host keep whole values, which are then gathered here.
  void after_update(Trainables& chunk, StepContext&) override { values().updated(chunk); }

 private:
  const Options section_;
};

}  // namespace drivetrain
