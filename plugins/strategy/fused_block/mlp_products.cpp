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

void Block::first_product(const NormOutput& x, Inner& h, Replace replace, bool keep, bool* replaced) const {
  const at::Tensor& rows = x.norm.y.defined() ? x.norm.y : x.norm.sum;  // y may be a piece
  h.has_gelu = has_gelu(rows);
  if (!h.has_gelu) {
    h.fc = after_norm(x, kBare, replace, keep, replaced);
    return;
  }
  restore_norm(x.norm, layers_.norm2);
  h.act = gelu_of(*layers_.fc, rows.device().type(), rows.scalar_type())->apply_gelu(x.norm.y, h.fc);
}

at::Tensor Block::second_product(Inner& h, bool keep) const {
  if (h.act.defined()) return apply(*layers_.mlp_proj, h.act, kWhole, replace_if(keep));
  const ops::Operand of_fc = ops::Operand::activation(activation_, h.fc, value(layers_.fc->bias()));
  return act_reader_->apply_to(of_fc, kWhole, keep ? &h.of_act : nullptr);
}

void Block::restore_act(Inner& h) const {
  if (h.act.defined() || act_reader_) return;
  h.act = ops::activation(activation_, h.fc, h.has_gelu ? at::Tensor() : value(layers_.fc->bias()));
}

ops::Operand Block::second_backward(at::Tensor ddelta, Inner& given, WeightWork& work) const {
  Inner h = std::exchange(given, {});
  const ParamPtr bias = layers_.fc->bias();
  const bool sums_bias = bias && bias->trainable;
  if (h.has_gelu) {
    const GeluLinear2* const gelu = gelu_of(*layers_.mlp_proj, h.fc.device().type(), h.fc.scalar_type());
    const at::Tensor dfc = gelu->apply_backward_gelu(ddelta, h.act, h.fc, work);
    h.act.reset();
    // Not by the epilogue, which would round the sum to 16 bits.
    if (sums_bias) ops::accumulate_bias_grad(*bias, dfc);
    return dfc;
  }
  at::Tensor dact;
  if (h.act.defined()) {
    dact = layers_.mlp_proj->apply_backward(ddelta, h.act, kWhole, work);
  } else {
    const ops::Operand of_fc = ops::Operand::activation(activation_, h.fc, value(bias));
    dact = act_reader_->apply_backward_to(ddelta, of_fc, h.of_act, kWhole, work);
  }
  ddelta.reset(), h.act.reset(), h.of_act.reset();
  // The sum for the bias is taken by the pass that writes the gradient.
  if (reader2_.takes && !sums_bias) return ops::Operand::activation_backward(activation_, h.fc, dact, value(bias));
  return ops::activation_backward(activation_, h.fc, dact, bias.get());
}

namespace {

// Its cast for the weight's gradient.
double kept_by(const Linear& layer) { return layer.params().front()->trainable ? 0.5 : 0; }

}  // namespace

double NormReader::kept() const { return !params.here ? 0 : computes ? kept_by(layer) : 1; }
double Block::act_kept() const { return act_reader_ ? kept_by(*layers_.mlp_proj) : 1; }

NormOutput Block::norm1_of(Activations& a) const { return {reader1_, a.norm1, a.of_norm1}; }
NormOutput Block::norm2_of(Activations& a) const { return {reader2_, a.norm2, a.of_norm2}; }

ops::Operand Block::operand_of(const NormOutput& x) const {
  const NormParams& params = x.reader.params;
  return ops::Operand::norm(x.norm, value(params.weight), value(params.bias), norm_args_);
}

at::Tensor Block::after_norm(const NormOutput& x, const Linear::Options& options, Replace replace, bool keep,
                             bool* replaced) const {
  const NormReader& reader = x.reader;
  if (reader.computes) return reader.takes->apply_to(operand_of(x), options, keep ? &x.kept : nullptr);
  restore_norm(x.norm, reader.params);
  return apply(reader.layer, x.norm.y, options, replace, replaced);
}

at::Tensor Block::back_to_norm(const NormOutput& x, const ops::Operand& dy, WeightWork& work) const {
  const NormReader& reader = x.reader;
  const KeptOperand kept = std::exchange(x.kept, {});
  if (reader.computes) return reader.takes->apply_backward_to(dy, operand_of(x), kept, kBare, work);
  restore_norm(x.norm, reader.params);
  const at::Tensor y = std::exchange(x.norm.y, {});
  return reader.takes ? reader.takes->apply_backward_to(dy, y, {}, kBare, work)
                      : reader.layer.apply_backward(dy.value(), y, kBare, work);
}

}  // namespace drivetrain::fused_block
