#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include <drivetrain/toolkit/ops/ops.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/rotary/rotary.h"

#include "heads.h"

namespace drivetrain::ops {
namespace {

// x [B, S, heads, C] turned by the angles, or back for sign -1; 16 bits go through float32.
at::Tensor turned(const at::Tensor& x, const RotaryTable& table, double sign) {
  if (!table.cos.defined()) return x.contiguous();
  const at::Tensor wide = x.to(table.cos.scalar_type());
  const auto by_row = [&](const at::Tensor& angles) { return angles.view({-1, x.size(1), 1, angles.size(1)}); };
  const at::Tensor cos = by_row(table.cos), sin = by_row(table.sin) * sign;
  const int64_t pairs = cos.size(3), rest = x.size(3) - 2 * pairs;
  const at::Tensor a = wide.narrow(3, 0, pairs), b = wide.narrow(3, pairs, pairs);
  return at::cat({a * cos - b * sin, b * cos + a * sin, wide.narrow(3, 2 * pairs, rest)}, 3).to(x.scalar_type());
}

at::Tensor turned_alone(const at::Tensor& given, const RotaryTable& table, bool back) {
  if (!table.cos.defined()) return given;
  if (!has_kernel(given)) return turned(given, table, back ? -1 : 1);
  const at::Tensor x = given.contiguous(), y = at::empty_like(x);
  // One matrix of query heads, which is the split's result at once.
  kernels::Rotary op = rotary_arguments(back ? y : x, {back ? x : y, {}, {}}, table);
  if (back)
    run(x, op, op.tokens, 16, kernels::rotary_backward_cpu, DRIVETRAIN_CUDA_KERNEL(rotary_backward_cuda), "rotary");
  else
    run(x, op, op.tokens, 16, kernels::rotary_forward_cpu, DRIVETRAIN_CUDA_KERNEL(rotary_forward_cuda), "rotary");
  return y;
}

}  // namespace

kernels::Rotary rotary_arguments(const at::Tensor& qkv, const Heads& heads, const RotaryTable& table) {
  kernels::Rotary op;
  op.qkv = const_cast<void*>(in(qkv));
  op.q = const_cast<void*>(in(heads.q)), op.k = const_cast<void*>(in(heads.k)), op.v = const_cast<void*>(in(heads.v));
  op.cos = in<float>(table.cos), op.sin = in<float>(table.sin);
  op.tokens = qkv.size(0) * qkv.size(1);
  op.sequence = table.cos.defined() ? table.cos.size(0) : qkv.size(1);  // after so many tokens the angles repeat
  op.pairs = table.cos.defined() ? table.cos.size(1) : 0;
  op.heads = heads.q.size(2), op.groups = heads.k.defined() ? heads.k.size(2) : 0, op.head_dim = heads.q.size(3);
  op.dtype = kernel_dtype(qkv);
  return op;
}

RotaryTable rotary_table(const std::vector<double>& frequencies, int64_t first, int64_t length, const at::Tensor& like,
                         double scale) {
  const auto pairs = static_cast<int64_t>(frequencies.size());
  at::Tensor cos = at::empty({length, pairs}, at::TensorOptions(at::kDouble)), sin = at::empty_like(cos);
  double *c = cos.mutable_data_ptr<double>(), *s = sin.mutable_data_ptr<double>();
  for (int64_t p = first; p < first + length; ++p)
    for (const double w : frequencies)
      *c++ = scale * std::cos(static_cast<double>(p) * w), *s++ = scale * std::sin(static_cast<double>(p) * w);
  const auto options = like.options().dtype(like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return {cos.to(options), sin.to(options)};
}

Heads split_heads(const at::Tensor& given, const at::Tensor& bias, const RotaryTable& table, int64_t heads,
                  int64_t groups, const QkNorm& norm) {
  if (norm.q) return split_normed_heads(given, bias, table, heads, groups, norm);
  const int64_t B = given.size(0), S = given.size(1), all = heads + 2 * groups, C = given.size(2) / all;
  if (!given.is_cpu() && !bias.defined() && !table.cos.defined()) {
    const at::Tensor x = given.contiguous().view({B, S, all, C});
    return {x.narrow(2, 0, heads), x.narrow(2, heads, groups), x.narrow(2, heads + groups, groups)};
  }
  if (!has_kernel(given)) {
    const at::Tensor x = (bias.defined() ? at::add(given, bias) : given).reshape({B, S, all, C});
    return {turned(x.narrow(2, 0, heads), table, 1), turned(x.narrow(2, heads, groups), table, 1),
            x.narrow(2, heads + groups, groups).contiguous()};
  }
  const at::Tensor qkv = given.contiguous();
  const Heads h = empty_heads(qkv, heads, groups);
  kernels::Rotary op = rotary_arguments(qkv, h, table);
  op.bias = in(bias);
  run(qkv, op, op.tokens, 16, kernels::rotary_forward_cpu, DRIVETRAIN_CUDA_KERNEL(rotary_forward_cuda), "rotary");
  return h;
}

Heads empty_heads(const at::Tensor& qkv, int64_t heads, int64_t groups) {
  const int64_t B = qkv.size(0), S = qkv.size(1), C = qkv.size(2) / (heads + 2 * groups);
  return {at::empty({B, S, heads, C}, qkv.options()), at::empty({B, S, groups, C}, qkv.options()),
          at::empty({B, S, groups, C}, qkv.options())};
}

at::Tensor split_heads_backward(const Heads& given, const RotaryTable& table, Param* bias) {
  const Heads d = {given.q.contiguous(), given.k.contiguous(), given.v.contiguous()};
  const int64_t B = d.q.size(0), S = d.q.size(1), all = d.q.size(2) + 2 * d.k.size(2), C = d.q.size(3);
  at::Tensor dqkv;
  if (!has_kernel(d.q)) {
    dqkv = at::cat({turned(d.q, table, -1), turned(d.k, table, -1), d.v}, 2).reshape({B, S, all * C});
  } else {
    dqkv = at::empty({B, S, all * C}, d.q.options());
    kernels::Rotary op = rotary_arguments(dqkv, d, table);
    at::Tensor partial;
    if (dqkv.is_cuda() && bias && bias->trainable) {
      partial =
          at::empty({kernels::blocks_of(op.tokens, kernels::kRotaryRows), all * C}, dqkv.options().dtype(at::kFloat));
      op.partial = out<float>(partial);
    }
    run(dqkv, op, B * S, 16, kernels::rotary_backward_cpu, DRIVETRAIN_CUDA_KERNEL(rotary_backward_cuda),
        "rotary backward");
    if (partial.defined()) return add_partial_sums(*bias, partial), dqkv;
  }
  if (bias && bias->trainable) accumulate_bias_grad(*bias, dqkv);
  return dqkv;
}

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table) { return turned_alone(x, table, false); }

at::Tensor rotate_backward(const at::Tensor& dy, const RotaryTable& table) { return turned_alone(dy, table, true); }

}  // namespace drivetrain::ops
