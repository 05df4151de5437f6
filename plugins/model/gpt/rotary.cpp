#include "rotary.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <drivetrain/differentiable.h>
#include <drivetrain/error.h>
#include <drivetrain/ops.h>

namespace drivetrain::gpt {
namespace {

// Nothing came back along it.
at::Tensor or_zero(const at::Tensor& d, const at::Tensor& like, at::IntArrayRef shape) {
  return d.defined() ? d : at::zeros(shape, like.options());
}

ops::RotaryTable rows(const ops::RotaryTable& table, const RowRange& range) {
  return {table.cos.narrow(0, range.first, range.count), table.sin.narrow(0, range.first, range.count)};
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

ops::RotaryTable Rotary::table(const std::vector<RowRange>& positions, const at::Tensor& like) {
  int64_t end = 0;
  for (const RowRange& range : positions) end = std::max(end, range.first + range.count);
  reach(end, like);
  if (positions.size() == 1) return rows(longest_, positions.front());
  for (const Cut& cut : cuts_)
    if (cut.positions == positions) return cut.table;
  Tensors cos, sin;
  for (const RowRange& range : positions) {
    const ops::RotaryTable part = rows(longest_, range);
    cos.push_back(part.cos), sin.push_back(part.sin);
  }
  return cuts_.emplace_back(Cut{positions, {at::cat(cos), at::cat(sin)}}).table;
}

void Rotary::reach(int64_t end, const at::Tensor& like) {
  const at::ScalarType dtype = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor& old = longest_.cos;
  const bool same_kind = old.defined() && old.scalar_type() == dtype && old.device() == like.device();
  if (same_kind && old.size(0) >= end) return;
  if (!same_kind) cuts_.clear();
  longest_ = ops::rotary_table(frequencies_, 0, end, like);
}

QueryKeyValue Rotary::apply(const at::Tensor& qkv, int64_t heads, int64_t groups,
                            const std::vector<RowRange>& positions) {
  const int64_t B = qkv.size(0), S = qkv.size(1), D = qkv.size(2) / (heads + 2 * groups);
  const ops::RotaryTable here = table(positions, qkv);
  if (here.cos.size(0) != S)
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
