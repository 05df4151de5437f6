// The end of a step: gradients final, counts and norm agreed by all ranks, one scale, one update.
#pragma once

#include <vector>

#include "compose/composition.h"
#include "step/executor.h"
#include "step/norm.h"
#include "step/phase_clock.h"

namespace drivetrain {

// One step's figures, reduced over all ranks.
struct StepResult {
  int64_t step = 0;
  double loss = 0;         // mean over the valid tokens of the global batch
  double grad_norm = 0;    // before clipping
  double lr = 0;           // of group 0, used in this step
  int64_t tokens = 0;      // valid ones
  double peak_memory_bytes = 0;  // largest over ranks
  bool stop = false;       // some rank was asked to stop
};

class Finish {
 public:
  explicit Finish(Composition& run);

  // What the loss's backward starts with: near 1 / tokens of a full global batch.
  double seed_gradient() const { return seed_gradient_; }

  // Sums over all ranks: loss and tokens of this rank's micro-batches; `stop` is or-ed. Collective.
  StepResult agree(const LossSum& mine, bool stop);

  // flush_grads, norm, update, after_update. Throws Error(numeric) if loss or norm is not finite: nothing was updated then.
  void update(StepResult& result, StepContext& ctx);

  void observe(PhaseClock* clock) { clock_ = clock; }

 private:
  at::Tensor hyper(const StepResult& result, double& lr) const;

  Composition& run_;
  GroupPtr gradients_, world_;
  GradNorm norm_;
  double seed_gradient_;
  int64_t tokens_seen_ = 0;
  PhaseClock* clock_ = nullptr;
};

}  // namespace drivetrain
