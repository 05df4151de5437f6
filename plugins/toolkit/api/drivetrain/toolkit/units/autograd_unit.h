// A unit that is written as forward code only. LibTorch's autograd computes the backward on a graph of this unit alone.
// Thread: main; the backward of the operators in `run` on autograd's.
#pragma once

#include <drivetrain/unit.h>

namespace drivetrain {

class AutogradUnit : public Unit {
 public:
  using Unit::Unit;
  ~AutogradUnit() override;

  // The forward pass. x and the result are those of Unit::forward. Autograd records in training; the runtime switches
  // it off for evaluation and for the first forward of a unit that is recomputed.
  virtual Tensors run(const Tensors& x, StepContext& ctx) = 0;

  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) final;
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) final;
};

}  // namespace drivetrain
