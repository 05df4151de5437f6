// Matrix products that write weight gradients directly to their slots, without a temporary tensor of the weight's size.
//
// Legend: N rows (all leading dimensions of x), I in, O out. Thread: main; backward on autograd's. Stream: the current
// one.
#pragma once

#include <drivetrain/param.h>
#include <drivetrain/weight_work.h>

namespace drivetrain {

// Overwrites the slot of `weight` [O, I] with dy^T x or adds to it, as Param::write_grad says. dy [N, O], x [N, I]. If
// the slot has another dtype than dy and x, the product is a temporary.
void accumulate_weight_grad(Param& weight, const at::Tensor& dy, const at::Tensor& x);

// product: x [N, I] W^T + b, [N, O]. product_backward: dy [N, O] W, [N, I]. weight [O, I]; bias [O] or undefined. Both
// use the library of LibTorch that is faster on this processor for the shape; nothing else affects the choice. No
// autograd.
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
at::Tensor product_backward(const at::Tensor& dy, const at::Tensor& weight);

// y [..., O] = x [..., I] W^T + b. weight [O, I]; bias [O] or null.
// Differentiable. Backward returns dx, and writes db and, by WeightWork::current, dW to their slots.
at::Tensor linear(const at::Tensor& x, const ParamPtr& weight, const ParamPtr& bias);

// y [..., D] = W[ids]. ids int64 of any shape; weight [V, D]. Differentiable. Backward adds the rows of dW in the order
// of positions, so the result is always the same.
at::Tensor embedding(const at::Tensor& ids, const ParamPtr& weight);
// The same where W has a part of the rows: ids outside of [0, V) give zeros, and no gradient.
at::Tensor embedding_of_part(const at::Tensor& ids, const ParamPtr& weight);

}  // namespace drivetrain
