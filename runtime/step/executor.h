// Interprets a schedule's program on this rank's units: loads micro-batches, runs units forward and backward between the
// strategies' hooks, and keeps what backward needs.
#pragma once

#include <functional>
#include <map>

#include "step/hooks.h"
#include "step/phase_clock.h"
#include "step/program.h"
#include "step/step_state.h"

namespace drivetrain {

// Sums over this rank's micro-batches of one program run.
struct LossSum {
  double loss = 0;     // over valid tokens
  int64_t tokens = 0;  // valid ones
};

class Executor {
 public:
  using Load = std::function<Batch(int64_t micro)>;

  Executor(UnitList& units, const Strategies& strategies, StepState& state);

  // Runs load, forward and backward instructions of `program` up to the first flush_grads (or its end).
  // `seed_gradient`: what the loss's backward starts with. Error(internal) for an instruction out of order.
  LossSum run(const Program& program, int64_t step, Mode mode, const Load& load, double seed_gradient);

  void observe(PhaseClock* clock) { clock_ = clock; }

  // The last unit's output of a forward-only run without labels.
  const at::Tensor& logits() const { return logits_; }

 private:
  LossSum with_losses(LossSum sum);
  void forward(int64_t micro, LossSum& sum);
  void backward(int64_t micro, double seed_gradient);
  Tensors forward_unit(const Tensors& x, Saved& saved);
  Tensors backward_unit(const Tensors& dy, Saved& saved);

  UnitList& units_;
  const Strategies& strategies_;
  StepState& state_;
  std::map<int64_t, std::vector<Saved>> saved_;  // per micro-batch in flight, one per unit
  Tensors losses_;  // of this run's micro-batches
  at::Tensor logits_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace drivetrain
