#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/threshold_backward.h>

#include <iterator>

#include <drivetrain/toolkit/ops/ops.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/activation/activation.h"

namespace drivetrain::ops {
namespace {

constexpr const char* kNames[] = {"gelu_tanh", "gelu", "silu", "relu", "swiglu", "geglu", "geglu_tanh", "reglu"};

at::Tensor with_bias(const at::Tensor& x, const at::Tensor& bias) { return bias.defined() ? at::add(x, bias) : x; }

// Both name the same functions in the same order.
kernels::Activation kernel_kind(Activation kind) { return static_cast<kernels::Activation>(kind); }
static_assert(static_cast<int>(Activation::reglu) == static_cast<int>(kernels::Activation::reglu) &&
              static_cast<int>(Activation::swiglu) == static_cast<int>(kernels::Activation::swiglu));

std::vector<int64_t> result_shape(Activation kind, const at::Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  if (is_gated(kind)) shape.back() /= 2;
  return shape;
}

// The function that is not gated, or is the gate.
at::Tensor value_of(Activation kind, const at::Tensor& x) {
  switch (kind) {
    case Activation::gelu_tanh:
    case Activation::geglu_tanh:
      return at::gelu(x, "tanh");
    case Activation::gelu:
    case Activation::geglu:
      return at::gelu(x, "none");
    case Activation::silu:
    case Activation::swiglu:
      return at::silu(x);
    case Activation::relu:
    case Activation::reglu:
      return at::relu(x);
  }
  return {};
}

at::Tensor gradient_of(Activation kind, const at::Tensor& x, const at::Tensor& dy) {
  switch (kind) {
    case Activation::gelu_tanh:
    case Activation::geglu_tanh:
      return at::gelu_backward(dy, x, "tanh");
    case Activation::gelu:
    case Activation::geglu:
      return at::gelu_backward(dy, x, "none");
    case Activation::silu:
    case Activation::swiglu:
      return at::silu_backward(dy, x);
    case Activation::relu:
    case Activation::reglu:
      return at::threshold_backward(dy, x, 0);
  }
  return {};
}

at::Tensor activation_by_operators(Activation kind, const at::Tensor& x) {
  if (!is_gated(kind)) return value_of(kind, x);
  const int64_t F = x.size(-1) / 2;
  return value_of(kind, x.narrow(-1, 0, F)) * x.narrow(-1, F, F);
}

at::Tensor activation_backward_by_operators(Activation kind, const at::Tensor& x, const at::Tensor& dy) {
  if (!is_gated(kind)) return gradient_of(kind, x, dy);
  const int64_t F = x.size(-1) / 2;
  const at::Tensor gate = x.narrow(-1, 0, F), up = x.narrow(-1, F, F);
  return at::cat({gradient_of(kind, gate, dy * up), dy * value_of(kind, gate)}, -1);
}

// `summed`: gets the sum of dx over rows; or null.
at::Tensor backward(Activation kind, const at::Tensor& given, const at::Tensor& given_dy, const at::Tensor& bias,
                    Param* summed) {
  if (!has_kernel(given)) {
    const at::Tensor dx = activation_backward_by_operators(kind, with_bias(given, bias), given_dy);
    if (summed) accumulate_bias_grad(*summed, dx);
    return dx;
  }
  const at::Tensor x = given.contiguous(), dy = given_dy.contiguous(), dx = at::empty_like(x);
  kernels::ActivationBackward op;
  op.columns = dy.size(-1), op.rows = dy.numel() / op.columns;
  const int64_t blocks = kernels::blocks_of(op.rows, kernels::kActivationRows);
  at::Tensor partial;
  if (summed) partial = at::empty({blocks, x.size(-1)}, x.options().dtype(at::kFloat));
  op.x = in(x), op.bias = in(bias), op.dy = in(dy), op.dx = out(dx), op.partial = out<float>(partial);
  op.kind = kernel_kind(kind), op.dtype = kernel_dtype(x);
  run(x, op, blocks, 1, kernels::activation_backward_cpu, DRIVETRAIN_CUDA_KERNEL(activation_backward_cuda),
      "activation backward");
  if (summed) add_partial_sums(*summed, partial);
  return dx;
}

}  // namespace

Activation activation_of(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Activation>(i);
  throw fail(ErrorCode::config, "activation ", name,
             " is not known: use gelu_tanh, gelu, silu, relu, swiglu, geglu, geglu_tanh or reglu");
}

bool is_gated(Activation kind) { return kernels::is_gated(kernel_kind(kind)); }

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

at::Tensor activation_backward(Activation kind, const at::Tensor& x, const at::Tensor& dy, const at::Tensor& bias) {
  return backward(kind, x, dy, bias, nullptr);
}

at::Tensor activation_backward(Activation kind, const at::Tensor& x, const at::Tensor& dy, Param* bias) {
  return backward(kind, x, dy, bias ? bias->tensor.detach() : at::Tensor(), bias && bias->trainable ? bias : nullptr);
}

}  // namespace drivetrain::ops
