#include "rotary.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain::gpt {
namespace {

// Nothing came back along it.
at::Tensor or_zero(const at::Tensor& d, const at::Tensor& like, at::IntArrayRef shape) {
  return d.defined() ? d : at::zeros(shape, like.options());
}

}  // namespace

std::vector<double> rotary_frequencies(const RotaryScaling& r, int64_t head_dim) {
  std::vector<double> list;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double w = std::pow(r.base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (r.llama3) {
      // Turns within the original context: many of them stay, few are stretched by `factor`, between the two a mixture.
      const double turns = static_cast<double>(r.original_positions) * w / (2 * std::numbers::pi);
      const double mix = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
      if (mix < 0)
        w /= r.factor;
      else if (mix <= 1)
        w = (1 - mix) * w / r.factor + mix * w;
    }
    list.push_back(w);
  }
  return list;
}

QueryKeyValue Rotary::apply(const at::Tensor& qkv, int64_t heads, int64_t groups, const StepContext& ctx) {
  const int64_t B = qkv.size(0), S = qkv.size(1), D = qkv.size(2) / (heads + 2 * groups);
  const ops::RotaryTable here = positions_.table(ctx, qkv);
  if (here.cos.size(0) != S && here.cos.size(0) != B * S)
    throw fail(ErrorCode::internal, "model/gpt: ", here.cos.size(0), " positions for q, k and v of shape ",
               qkv.sizes());
  const auto forward = [&](const Tensors& in) {
    const ops::Heads h = ops::split_heads(in[0], {}, here, heads, groups);
    return Tensors{h.q, h.k, h.v};
  };
  const auto backward = [=](const Tensors& dy) {
    at::Tensor like;
    for (const at::Tensor& d : dy)
      if (d.defined()) like = d;
    if (!like.defined()) return Tensors(1);
    const ops::Heads d = {or_zero(dy[0], like, {B, S, heads, D}), or_zero(dy[1], like, {B, S, groups, D}),
                          or_zero(dy[2], like, {B, S, groups, D})};
    return Tensors{ops::split_heads_backward(d, here, nullptr)};
  };
  const Tensors out = differentiable({qkv}, forward, backward);
  return {out[0], out[1], out[2]};
}

}  // namespace drivetrain::gpt
