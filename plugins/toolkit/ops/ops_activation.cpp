#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <drivetrain/toolkit/ops/ops.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/activation/activation.h"

namespace drivetrain::ops {
namespace {

const char* approximation(Activation kind) { return kind == Activation::gelu ? "none" : "tanh"; }

at::Tensor with_bias(const at::Tensor& x, const at::Tensor& bias) { return bias.defined() ? at::add(x, bias) : x; }

kernels::Activation kernel_kind(Activation kind) {
  return kind == Activation::gelu_tanh ? kernels::Activation::gelu_tanh
         : kind == Activation::gelu    ? kernels::Activation::gelu
                                       : kernels::Activation::swiglu;
}

std::vector<int64_t> result_shape(Activation kind, const at::Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  if (kind == Activation::swiglu) shape.back() /= 2;
  return shape;
}

at::Tensor activation_by_operators(Activation kind, const at::Tensor& x) {
  if (kind != Activation::swiglu) return at::gelu(x, approximation(kind));
  const int64_t F = x.size(-1) / 2;
  return at::silu(x.narrow(-1, 0, F)) * x.narrow(-1, F, F);
}

at::Tensor activation_backward_by_operators(Activation kind, const at::Tensor& x, const at::Tensor& dy) {
  if (kind != Activation::swiglu) return at::gelu_backward(dy, x, approximation(kind));
  const int64_t F = x.size(-1) / 2;
  const at::Tensor gate = x.narrow(-1, 0, F), up = x.narrow(-1, F, F);
  return at::cat({at::silu_backward(dy * up, gate), dy * at::silu(gate)}, -1);
}

}  // namespace

Activation activation_of(const std::string& name) {
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu;
  if (name == "swiglu") return Activation::swiglu;
  throw fail(ErrorCode::config, "activation ", name, " is not known: use gelu_tanh, gelu or swiglu");
}

at::Tensor activation(Activation kind, const at::Tensor& given, const at::Tensor& bias) {
  if (!has_kernel(given)) return activation_by_operators(kind, with_bias(given, bias));
  const at::Tensor x = given.contiguous(), y = at::empty(result_shape(kind, x), x.options());
  kernels::ActivationForward op;
  op.x = in(x), op.bias = in(bias), op.y = out(y);
  op.columns = y.size(-1), op.rows = y.numel() / op.columns;
  op.kind = kernel_kind(kind), op.dtype = kernel_dtype(x);
  run(x, op, op.rows, 8, kernels::activation_forward_cpu, DRIVETRAIN_CUDA_KERNEL(activation_forward_cuda),
      "activation");
  return y;
}

at::Tensor activation_backward(Activation kind, const at::Tensor& given, const at::Tensor& given_dy, Param* bias) {
  const at::Tensor b = bias ? bias->tensor.detach() : at::Tensor();
  const bool sum_bias = bias && bias->trainable;
  if (!has_kernel(given)) {
    const at::Tensor dx = activation_backward_by_operators(kind, with_bias(given, b), given_dy);
    if (sum_bias) accumulate_bias_grad(*bias, dx);
    return dx;
  }
  const at::Tensor x = given.contiguous(), dy = given_dy.contiguous(), dx = at::empty_like(x);
  kernels::ActivationBackward op;
  op.columns = dy.size(-1), op.rows = dy.numel() / op.columns;
  const int64_t blocks = kernels::blocks_of(op.rows, kernels::kActivationRows);
  at::Tensor partial;
  if (sum_bias) partial = at::empty({blocks, x.size(-1)}, x.options().dtype(at::kFloat));
  op.x = in(x), op.bias = in(b), op.dy = in(dy), op.dx = out(dx), op.partial = out<float>(partial);
  op.kind = kernel_kind(kind), op.dtype = kernel_dtype(x);
  run(x, op, blocks, 1, kernels::activation_backward_cpu, DRIVETRAIN_CUDA_KERNEL(activation_backward_cuda),
      "activation backward");
  if (sum_bias) add_partial_sums(*bias, partial);
  return dx;
}

}  // namespace drivetrain::ops
