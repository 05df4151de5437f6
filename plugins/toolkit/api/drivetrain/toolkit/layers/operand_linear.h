// Linear layers that take operands which are not computed yet (ops/operand.h), since their products cast what they read
// (8 bits): a norm's output or an activation is computed in that pass and never lies in memory. No autograd.
//
// Legend: N rows, I in, O out. Thread and stream: as linear.h.
#pragma once

#include <memory>

#include <drivetrain/layers.h>
#include <drivetrain/toolkit/ops/operand.h>

namespace drivetrain {

// What a product keeps of x for its backward in place of x, if it is asked for it: its own affair. Null: nothing.
using KeptOperand = std::shared_ptr<const void>;

// What a LinearProduct may be besides. Another toolkit may be in the process: a change of the members, of ops::Operand
// or of kernels::CastFrom changes the name.
class OperandProduct1 {
 public:
  virtual ~OperandProduct1() = default;
  // Whether that saves anything. Always the same.
  virtual bool takes_operands() const = 0;
  // As LinearProduct; x [N, I] and dy [N, O] in any leading shape. `kept`: null, or set to what backward may get.
  virtual at::Tensor forward(const ops::Operand& x, const Param& weight, const at::Tensor& bias,
                             KeptOperand* kept) const = 0;
  virtual at::Tensor backward(const ops::Operand& dy, const ops::Operand& x, const KeptOperand& kept,
                              const ParamPtr& weight, bool wants_dx, WeightWork& work) const = 0;
};

// What a linear layer may be besides. A layer that decorates another hands it on only where it adds nothing to the
// product.
class OperandLinear1 {
 public:
  virtual ~OperandLinear1() = default;
  virtual bool takes_operands() const = 0;
  // As Linear::apply and Linear::apply_backward. The bias's gradient wants a dy that is there.
  virtual at::Tensor apply_to(const ops::Operand& x, const Linear::Options& options, KeptOperand* kept) const = 0;
  virtual at::Tensor apply_backward_to(const ops::Operand& dy, const ops::Operand& x, const KeptOperand& kept,
                                       const Linear::Options& options, WeightWork& work) const = 0;
};
// Of any layer: null where it has none.
const OperandLinear1* operands_of(const Linear& layer);

}  // namespace drivetrain
