#include "rotary.h"

#include <ATen/ops/zeros.h>

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

ops::RotaryTable Rotary::table(const StepContext& ctx, const at::Tensor& x) {
  const ops::RotaryTable here = positions_.table(ctx, x);
  if (here.cos.size(0) != x.size(1) && here.cos.size(0) != x.size(0) * x.size(1))
    throw fail(ErrorCode::internal, "model/gpt: ", here.cos.size(0), " positions for q, k and v of shape ", x.sizes());
  return here;
}

QueryKeyValue Rotary::apply(const at::Tensor& qkv, int64_t heads, int64_t groups, const StepContext& ctx) {
  const int64_t B = qkv.size(0), S = qkv.size(1), D = qkv.size(2) / (heads + 2 * groups);
  const ops::RotaryTable here = table(ctx, qkv);
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

at::Tensor Rotary::turn(const at::Tensor& x, const StepContext& ctx) {
  const ops::RotaryTable here = table(ctx, x);
  return differentiable(
      {x}, [&](const Tensors& in) { return Tensors{ops::rotate(in[0], here)}; },
      [here](const Tensors& dy) { return Tensors{ops::rotate_backward(dy[0], here)}; })[0];
}

}  // namespace drivetrain::gpt
