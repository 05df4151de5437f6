// The MLP's two products and the activation between them: a pass after a product, or in its epilogue where both layers
// have that (toolkit/layers/gelu_linear.h).
#include <drivetrain/toolkit/layers/gelu_linear.h>

#include "block_parts.h"

namespace drivetrain::fused_block {

bool Block::has_gelu(at::DeviceType device, at::ScalarType dtype) const {
  return options_.gelu_fusion && activation_ == ops::Activation::gelu_tanh && gelu_of(*layers_.fc, device, dtype) &&
         gelu_of(*layers_.mlp_proj, device, dtype);
}

bool Block::has_gelu(const at::Tensor& x) const {
  const at::DeviceType device = x.device().type();
  const at::ScalarType dtype = x.scalar_type();
  if (!has_gelu(device, dtype)) return false;
  const int64_t rows = x.numel() / x.size(-1);
  const bool found = gelu_of(*layers_.fc, device, dtype)->finds_gelu(rows, false) &&
                     gelu_of(*layers_.mlp_proj, device, dtype)->finds_gelu(rows, true);
  if (!found && options_.misses_gelu) options_.misses_gelu(name(), rows);
  return found;
}

at::Tensor Block::first_product(at::Tensor& x, at::Tensor& act, Replace replace, bool* replaced) const {
  if (!has_gelu(x)) return apply(*layers_.fc, x, kBare, replace, replaced);
  at::Tensor fc;
  act = gelu_of(*layers_.fc, x.device().type(), x.scalar_type())->apply_gelu(x, fc);
  return fc;
}

at::Tensor Block::act_of(const at::Tensor& fc) const {
  return ops::activation(activation_, fc, has_gelu(fc) ? at::Tensor() : value(layers_.fc->bias()));
}

at::Tensor Block::second_backward(const at::Tensor& ddelta, at::Tensor& fc, at::Tensor& act, WeightWork& work) const {
  const ParamPtr bias = layers_.fc->bias();
  at::Tensor dfc;
  if (has_gelu(fc)) {
    dfc = gelu_of(*layers_.mlp_proj, fc.device().type(), fc.scalar_type())->apply_backward_gelu(ddelta, act, fc, work);
    act.reset();
    // Not by the epilogue, which would round the sum to 16 bits.
    if (bias && bias->trainable) ops::accumulate_bias_grad(*bias, dfc);
  } else {
    const at::Tensor dact = layers_.mlp_proj->apply_backward(ddelta, act, kWhole, work);
    act.reset();
    dfc = ops::activation_backward(activation_, fc, dact, bias.get());
  }
  fc.reset();
  return dfc;
}

}  // namespace drivetrain::fused_block
