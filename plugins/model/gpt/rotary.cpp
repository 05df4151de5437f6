#include "rotary.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>

#include <cmath>
#include <numbers>

#include <drivetrain/differentiable.h>
#include <drivetrain/ops.h>

namespace drivetrain::gpt {
namespace {

// to = from turned by the angles, or back for sign -1. [B, S, heads, D], any strides.
void turn(const at::Tensor& to, const at::Tensor& from, const at::Tensor& cos, const at::Tensor& sin, double sign) {
  const int64_t half = from.size(3) / 2;
  const auto first = [&](const at::Tensor& t) { return t.narrow(3, 0, half); };
  const auto second = [&](const at::Tensor& t) { return t.narrow(3, half, half); };
  if (from.scalar_type() != cos.scalar_type()) {  // 16-bit
    const at::Tensor wide = from.to(cos.scalar_type());
    at::Tensor result = at::empty_like(wide);
    turn(result, wide, cos, sin, sign);
    to.copy_(result);
    return;
  }
  at::Tensor a = first(to), b = second(to);
  at::mul_out(a, first(from), cos).addcmul_(second(from), sin, -sign);
  at::mul_out(b, second(from), cos).addcmul_(first(from), sin, sign);
}

void turn_or_zero(const at::Tensor& to, const at::Tensor& from, const at::Tensor& cos, const at::Tensor& sin,
                  double sign) {
  if (from.defined())
    turn(to, from, cos, sin, sign);
  else
    to.zero_();
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

const Rotary::Table& Rotary::table(int64_t length, const at::Tensor& like) {
  const at::ScalarType dtype = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor& old = table_.cos;
  if (old.defined() && old.size(0) >= length && old.scalar_type() == dtype && old.device() == like.device())
    return table_;
  const ops::RotaryTable made = ops::rotary_table(frequencies_, 0, length, like);
  table_ = {made.cos.unsqueeze(1), made.sin.unsqueeze(1)};
  return table_;
}

QueryKeyValue Rotary::apply(const at::Tensor& qkv, int64_t heads, int64_t groups, int64_t first) {
  const int64_t B = qkv.size(0), S = qkv.size(1), all = heads + 2 * groups, D = qkv.size(2) / all;
  const Table& whole = table(first + S, qkv);
  const at::Tensor cos = whole.cos.narrow(0, first, S), sin = whole.sin.narrow(0, first, S);
  const auto part = [=](const at::Tensor& t, int64_t begin, int64_t count) {
    return t.view({B, S, all, D}).narrow(2, begin, count);
  };
  const auto forward = [&](const Tensors& in) {
    const at::Tensor x = in[0].contiguous();
    const at::Tensor q = at::empty({B, S, heads, D}, x.options()), k = at::empty({B, S, groups, D}, x.options());
    turn(q, part(x, 0, heads), cos, sin, 1);
    turn(k, part(x, heads, groups), cos, sin, 1);
    return Tensors{q, k, part(x, heads + groups, groups).clone()};
  };
  const auto backward = [=](const Tensors& dy) {
    at::Tensor like;
    for (const at::Tensor& d : dy)
      if (d.defined()) like = d;
    if (!like.defined()) return Tensors(1);
    const at::Tensor dx = at::empty({B, S, all * D}, like.options());
    turn_or_zero(part(dx, 0, heads), dy[0], cos, sin, -1);
    turn_or_zero(part(dx, heads, groups), dy[1], cos, sin, -1);
    const at::Tensor dv = part(dx, heads + groups, groups);
    if (dy[2].defined())
      dv.copy_(dy[2]);
    else
      dv.zero_();
    return Tensors{dx};
  };
  const Tensors out = differentiable({qkv}, forward, backward);
  return {out[0], out[1], out[2]};
}

}  // namespace drivetrain::gpt
