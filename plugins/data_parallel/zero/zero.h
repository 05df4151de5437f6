// ZeRO stages 1, 2 and 3 with DeepSpeed's options. stages.cpp has what each stage cuts and does in a step, plan.cpp
// what each key asks for. Main thread.
//
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5
// (stages); Zhang et al. 2022, "MiCS" (groups); Wang et al. 2023, "ZeRO++", section 3.2 (a second copy for backward).
// Unlike DeepSpeed's, stages 1 and 2 really reduce-scatter, and the order of uses is known, not traced, so prefetching
// is right from the first step.
#pragma once

#include <drivetrain/toolkit/sharding/state_sharing.h>

#include "options.h"

namespace drivetrain {

class Zero : public StateSharing {
 public:
  using Options = ZeroOptions;
  static OptionTable options() { return zero_table(); }

  Zero(const Options& options, const Services& services) : StateSharing(services), section_(options) {}

  // Claims the axes and says what is refused, expensive or without effect.
  void plan(PlanContext& ctx) override;

  // stages.cpp
  void before_forward(const Visit& visit, StepContext& ctx) override;
  void after_forward(const Visit& visit, StepContext& ctx) override;
  void before_backward(const Visit& visit, StepContext& ctx) override;
  void values_done(const Visit& visit, StepContext& ctx) override;
  void before_grads(const Visit& visit, StepContext& ctx) override;
  void after_backward(const Visit& visit, StepContext& ctx) override;
  void after_update(Trainables& chunk, StepContext& ctx) override;

 private:
  void cut_by_stage(int64_t stage);  // stages.cpp
  void share_state(PlanContext& ctx);
  void choose_ranks(PlanContext& ctx);
  void choose_buckets();
  void choose_values(PlanContext& ctx);
  void report_unsharded_parameters(PlanContext& ctx) const;

  const Options section_;
};

}  // namespace drivetrain
