// Matrix products whose weight gradients go straight into their slots:
// no temporary of the weight's size, no extra pass.
//
// Legend: N rows (all leading dimensions of x), I in, O out.
#pragma once

#include <drivetrain/param.h>
#include <drivetrain/weight_work.h>

namespace drivetrain {

// weight's slot [O, I] := or += dy^T x, as Param::write_grad says.
// dy [N, O], x [N, I]; another dtype than the slot's goes through a temporary.
void accumulate_weight_grad(Param& weight, const at::Tensor& dy, const at::Tensor& x);

// x [N, I] W^T + b [N, O], and dy [N, O] W [N, I], by whichever of LibTorch's libraries is faster on this processor:
// a choice by processor and shape alone. No autograd. weight [O, I]; bias [O] or undefined.
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
at::Tensor product_backward(const at::Tensor& dy, const at::Tensor& weight);

// y [..., O] = x [..., I] W^T + b. weight [O, I]; bias [O] or null.
// Backward: dx by autograd, dW (as WeightWork::current says) and db into the slots.
at::Tensor linear(const at::Tensor& x, const ParamPtr& weight, const ParamPtr& bias);

// y [..., D] = W[ids]. ids int64 of any shape; weight [V, D]. Rows of dW are added in order of position: fixed bits.
at::Tensor embedding(const at::Tensor& ids, const ParamPtr& weight);

}  // namespace drivetrain
