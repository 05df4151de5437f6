// The MLP's activation with the bias of the linear layer before it, and its backward.
// Only that layer's raw output is kept.
//
// Source: Hendrycks and Gimpel 2016, "Gaussian error linear units" (exact: x Phi(x); tanh: its approximation);
// Shazeer 2020, "GLU variants improve transformer", eq. 5 and 6 (act(gate) * up, the gate in the first F columns; act
// is silu for swiglu, gelu for geglu, relu for reglu). The slope of relu at 0 is 0.
// Legend: N rows, F columns of y, W columns of x: F, or 2 F for a gated one.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

enum class Activation : uint8_t { gelu_tanh, gelu, silu, relu, swiglu, geglu, geglu_tanh, reglu };
constexpr bool is_gated(Activation kind) { return kind >= Activation::swiglu; }

struct ActivationForward {
  const void* x = nullptr;        // [N, W]
  const void* bias = nullptr;     // [W] or null
  void* y = nullptr;              // [N, F]
  int64_t rows = 0, columns = 0;  // N, F
  Activation kind = Activation::gelu_tanh;
  Dtype dtype = Dtype::f32;
};
DRIVETRAIN_KERNEL void activation_forward_cpu(const ActivationForward&, int64_t row_begin, int64_t row_end);
DRIVETRAIN_KERNEL int activation_forward_cuda(const ActivationForward&, void* stream);

inline constexpr int64_t kActivationRows = 64;
struct ActivationBackward {
  const void* x = nullptr;     // [N, W]
  const void* bias = nullptr;  // [W] or null
  const void* dy = nullptr;    // [N, F]
  void* dx = nullptr;          // [N, W]; may be x
  // [blocks_of(N, kActivationRows), W] or null: dx summed over each block's rows, for the bias
  float* partial = nullptr;
  int64_t rows = 0, columns = 0;
  Activation kind = Activation::gelu_tanh;
  Dtype dtype = Dtype::f32;
};
DRIVETRAIN_KERNEL void activation_backward_cpu(const ActivationBackward&, int64_t block_begin, int64_t block_end);
DRIVETRAIN_KERNEL int activation_backward_cuda(const ActivationBackward&, void* stream);

}  // namespace drivetrain::kernels
