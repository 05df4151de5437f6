// Fully sharded data parallelism: every rank holds a part of each unit's parameters, gradients and optimizer state;
// whole values exist around a unit's forward and backward only. Main thread.
//
// Source: Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", section 3 (flat
// parameters, hybrid sharding, prefetching). We differ: the order of uses is known before the first step, and the sum
// over ranks has a fixed order.
#pragma once

#include <drivetrain/toolkit/sharding/state_sharing.h>

#include "options.h"

namespace drivetrain {

class Fsdp : public StateSharing {
 public:
  using Options = FsdpOptions;
  static OptionTable options() { return fsdp_table(); }

  Fsdp(const Options& options, const Services& services) : StateSharing(services), section_(options) {}

  // Claims the axes and says what is refused, expensive or without effect.
  void plan(PlanContext& ctx) override;

  // step.cpp
  void before_forward(const Visit& visit, StepContext& ctx) override;
  void after_forward(const Visit& visit, StepContext& ctx) override;
  void before_backward(const Visit& visit, StepContext& ctx) override;
  void values_done(const Visit& visit, StepContext& ctx) override;
  void before_grads(const Visit& visit, StepContext& ctx) override;
  void after_backward(const Visit& visit, StepContext& ctx) override;
  void after_update(Trainables& chunk, StepContext& ctx) override;

 private:
  const Options section_;
};

}  // namespace drivetrain
