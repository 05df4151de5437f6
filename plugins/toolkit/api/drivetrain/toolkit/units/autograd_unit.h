// A unit written as plain forward code; LibTorch's autograd does the backward on the unit's private graph.
#pragma once

#include <drivetrain/unit.h>

namespace drivetrain {

class AutogradUnit : public Unit {
 public:
  using Unit::Unit;
  ~AutogradUnit() override;

  // The forward pass, with autograd recording (unless the runtime switched it off).
  virtual Tensors run(const Tensors& x, StepContext& ctx) = 0;

  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) final;
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) final;
};

}  // namespace drivetrain
