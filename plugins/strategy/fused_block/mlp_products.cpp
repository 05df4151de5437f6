// The products behind norms and those of the MLP, with the norm and the activation: passes of their own, in the first
// product's epilogue where both layers have that (gelu_linear.h), or in the cast of a product's operand where it takes
// that (operand_linear.h).
#include <drivetrain/toolkit/layers/gelu_linear.h>
#include <drivetrain/toolkit/layers/operand_linear.h>

#include <utility>

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

at::Tensor Block::first_product(const NormOutput& x, at::Tensor& act, Replace replace, bool keep,
                                bool* replaced) const {
  const at::Tensor& rows = x.norm.y.defined() ? x.norm.y : x.norm.sum;  // y may be a piece
  if (!has_gelu(rows)) return after_norm(x, kBare, replace, keep, replaced);
  restore_norm(x.norm, x.params);
  at::Tensor fc;
  act = gelu_of(*layers_.fc, rows.device().type(), rows.scalar_type())->apply_gelu(x.norm.y, fc);
  return fc;
}

bool Block::computes_act() const { return operands_of(*layers_.mlp_proj) != nullptr; }

at::Tensor Block::second_product(const at::Tensor& fc, at::Tensor& act, Replace replace, KeptOperand* kept) const {
  if (act.defined()) return apply(*layers_.mlp_proj, act, kWhole, replace);
  const ops::Operand of_fc = ops::Operand::activation(activation_, fc, value(layers_.fc->bias()));
  return operands_of(*layers_.mlp_proj)->apply_to(of_fc, kWhole, kept);
}

void Block::restore_act(const at::Tensor& fc, at::Tensor& act) const {
  if (!act.defined() && !computes_act()) act = act_of(fc);
}

at::Tensor Block::act_of(const at::Tensor& fc) const {
  return ops::activation(activation_, fc, has_gelu(fc) ? at::Tensor() : value(layers_.fc->bias()));
}

ops::Operand Block::second_backward(const at::Tensor& ddelta, at::Tensor& given_fc, at::Tensor& given_act,
                                    KeptOperand& given_kept, WeightWork& work) const {
  const at::Tensor fc = std::exchange(given_fc, {});
  at::Tensor act = std::exchange(given_act, {});
  KeptOperand kept = std::exchange(given_kept, {});
  const ParamPtr bias = layers_.fc->bias();
  const bool sums_bias = bias && bias->trainable;
  if (has_gelu(fc)) {
    const GeluLinear2* const gelu = gelu_of(*layers_.mlp_proj, fc.device().type(), fc.scalar_type());
    const at::Tensor dfc = gelu->apply_backward_gelu(ddelta, act, fc, work);
    act.reset();
    // Not by the epilogue, which would round the sum to 16 bits.
    if (sums_bias) ops::accumulate_bias_grad(*bias, dfc);
    return dfc;
  }
  at::Tensor dact;
  if (act.defined()) {
    dact = layers_.mlp_proj->apply_backward(ddelta, act, kWhole, work);
  } else {
    const ops::Operand of_fc = ops::Operand::activation(activation_, fc, value(bias));
    dact = operands_of(*layers_.mlp_proj)->apply_backward_to(ddelta, of_fc, kept, kWhole, work);
  }
  act.reset(), kept.reset();
  // The sum for the bias is taken by the pass that writes the gradient.
  if (operands_of(*layers_.fc) && !sums_bias)
    return ops::Operand::activation_backward(activation_, fc, dact, value(bias));
  return ops::activation_backward(activation_, fc, dact, bias.get());
}

bool Block::computes_norm(const Linear& layer, const NormParams& params) const {
  return params.here && operands_of(layer);
}

namespace {

// Its cast for the weight's gradient.
double kept_by(const Linear& layer) { return layer.params().front()->trainable ? 0.5 : 0; }

}  // namespace

double Block::norm_kept(const Linear& layer, const NormParams& params, bool there) const {
  if (!params.here) return 0;
  return computes_norm(layer, params) && !there ? kept_by(layer) : 1;
}
double Block::act_kept() const { return computes_act() ? kept_by(*layers_.mlp_proj) : 1; }

NormOutput Block::norm1_of(Activations& a) const { return {*layers_.qkv, layers_.norm1, a.norm1, a.of_norm1}; }
NormOutput Block::norm2_of(Activations& a) const { return {*layers_.fc, layers_.norm2, a.norm2, a.of_norm2}; }

ops::Operand Block::operand_of(const NormOutput& x) const {
  return ops::Operand::norm(x.norm, value(x.params.weight), value(x.params.bias), norm_args_);
}

at::Tensor Block::after_norm(const NormOutput& x, const Linear::Options& options, Replace replace, bool keep,
                             bool* replaced) const {
  if (x.computed()) return operands_of(x.layer)->apply_to(operand_of(x), options, keep ? &x.kept : nullptr);
  restore_norm(x.norm, x.params);
  return apply(x.layer, x.norm.y, options, replace, replaced);
}

at::Tensor Block::back_to_norm(const NormOutput& x, const ops::Operand& dy, WeightWork& work) const {
  const KeptOperand kept = std::exchange(x.kept, {});
  const OperandLinear1* const takes = operands_of(x.layer);
  if (x.computed()) return takes->apply_backward_to(dy, operand_of(x), kept, kBare, work);
  restore_norm(x.norm, x.params);
  const at::Tensor y = std::exchange(x.norm.y, {});
  return takes ? takes->apply_backward_to(dy, y, {}, kBare, work) : x.layer.apply_backward(dy.value(), y, kBare, work);
}

}  // namespace drivetrain::fused_block
