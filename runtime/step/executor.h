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

class Executor {
 public:
  using Load = std::function<Batch(int64_t micro)>;

  // `device`: where units compute. `seed_gradient`: what the loss's backward starts with, until seed_with.
  Executor(UnitList& units, const Strategies& strategies, StepState& state, const at::Device& device, double seed_gradient);

  // Runs that were recorded keep the one they were recorded with.
  void seed_with(double seed_gradient) { seed_gradient_ = seed_gradient; }

  // Which step comes: for the state, and for the strategies of a training step. Nothing of it is recorded with the program.
  void begin(const Program& program, int64_t step, Mode mode, bool replayed = false);
  // Runs load, forward and backward instructions of `program` up to the first flush_grads (or its end); enqueues only. Returns the
  // sum of the losses over valid tokens, a float64 scalar on the device (0 without labels). Error(internal) for an instruction out of
  // order.
  at::Tensor run(const Program& program, const Load& load);

  void observe(PhaseClock* clock) { clock_ = clock; }

  // The last unit's output of a forward-only run without labels.
  const at::Tensor& logits() const { return logits_; }

 private:
  at::Tensor sum_of_losses();
  void forward(int64_t micro);
  void backward(int64_t micro);
  Tensors forward_unit(const Tensors& x, Saved& saved);
  Tensors backward_unit(const Tensors& dy, Saved& saved);

  UnitList& units_;
  const Strategies& strategies_;
  StepState& state_;
  const at::Device device_;
  double seed_gradient_;
  std::map<int64_t, std::vector<Saved>> saved_;  // per micro-batch in flight, one per unit
  Tensors losses_;  // of this run's micro-batches
  at::Tensor logits_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace drivetrain
