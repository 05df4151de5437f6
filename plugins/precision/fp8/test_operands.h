// Operands that are not computed yet, for layers in 8 bits: inputs of a layer's width, and gradients of its output, of
// 3 x 7 rows.
#pragma once

#include <drivetrain/toolkit/layers/operand_linear.h>

#include "scaling.h"
#include "test_numbers.h"

namespace drivetrain::test {

using ops::Operand;

inline constexpr int64_t kIn = 32, kOut = 48;

inline std::vector<Recipe> recipes() {
  Recipe current, blocks, kept, wide;
  current.delayed = false;
  blocks.delayed = false, blocks.blocks = true;
  kept.keep_weights = true;
  wide.wgrad = false;
  return {{}, current, blocks, kept, wide};
}

inline std::vector<Operand> inputs(const at::Device& device = at::kCPU) {
  const auto t = [&](const std::vector<int64_t>& shape, uint64_t seed) {
    return numbers(shape, seed).to(at::kBFloat16).to(device);
  };
  const at::Tensor gain = t({kIn}, 3), bias = t({kIn}, 4), wide_bias = t({2 * kIn}, 5);
  const ops::NormArgs layer_norm, rms{1e-5, true, 1.0};
  return {Operand(t({3, 7, kIn}, 1)),
          Operand::activation(ops::Activation::gelu_tanh, t({3, 7, kIn}, 6), bias),
          Operand::activation(ops::Activation::swiglu, t({3, 7, 2 * kIn}, 7), {}),
          Operand::activation(ops::Activation::geglu, t({3, 7, 2 * kIn}, 8), wide_bias),
          Operand::norm(ops::norm(t({3, 7, kIn}, 9), {}, gain, bias, layer_norm), gain, bias, layer_norm),
          Operand::norm(ops::norm(t({3, 7, kIn}, 9), t({3, 7, kIn}, 10), gain, {}, rms), gain, {}, rms)};
}
inline std::vector<Operand> gradients(const at::Device& device = at::kCPU) {
  const auto t = [&](const std::vector<int64_t>& shape, uint64_t seed) {
    return numbers(shape, seed, 1e-3).to(at::kBFloat16).to(device);
  };
  return {Operand(t({3, 7, kOut}, 1)),
          Operand::activation_backward(ops::Activation::silu, t({3, 7, kOut}, 2), t({3, 7, kOut}, 3), t({kOut}, 4)),
          Operand::activation_backward(ops::Activation::swiglu, t({3, 7, kOut}, 5), t({3, 7, kOut / 2}, 6), {})};
}

}  // namespace drivetrain::test
