// Norms of queries and keys between the split and the rotation: heads alone in one pass where a kernel takes them,
// everything else one operation after the other.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/rotary/qk_norm.h"

#include "heads.h"

namespace drivetrain::ops {
namespace {

NormArgs norm_args(const QkNorm& norm) { return {norm.epsilon, true, norm.offset}; }

// The kernel's arguments, with the tensors that it reads or writes.
kernels::QkNormRotary kernel_arguments(const at::Tensor& qkv, const Heads& heads, const at::Tensor& bias,
                                       const RotaryTable& table, const QkNorm& norm) {
  kernels::QkNormRotary op;
  op.rotary = rotary_arguments(qkv, heads, table);
  op.rotary.bias = in(bias);
  op.q_weight = in(norm.q->tensor), op.k_weight = in(norm.k->tensor);
  op.epsilon = static_cast<float>(norm.epsilon), op.offset = static_cast<float>(norm.offset);
  return op;
}

// Whether each head is normed alone, in a type with kernels.
bool may_be_one_pass(const at::Tensor& x, const Heads& heads, const QkNorm& norm) {
  const auto fits = [&](const Param& weight) {
    return weight.tensor.numel() == heads.q.size(3) && weight.tensor.scalar_type() == x.scalar_type();
  };
  return has_kernel(x) && fits(*norm.q) && fits(*norm.k);
}

bool fits(const at::Tensor& x, const kernels::QkNormRotary& op) {
  if (x.is_cpu()) return kernels::qk_norm_fits_cpu(op);
#ifdef DRIVETRAIN_WITH_CUDA
  return kernels::qk_norm_fits_cuda(op);
#else
  return false;
#endif
}

// x [B, S, n, C] as the rows that `weight` is for: heads, or whole tokens.
at::Tensor rows_for(const at::Tensor& x, const Param& weight) {
  return weight.tensor.numel() == x.size(3) ? x.contiguous() : x.contiguous().flatten(2);
}

Normed normed(const at::Tensor& x, const Param& weight, const QkNorm& norm) {
  return ops::norm(rows_for(x, weight), {}, weight.tensor, {}, norm_args(norm));
}

at::Tensor normed_backward(const at::Tensor& dy, const at::Tensor& x, Param& weight, const QkNorm& norm) {
  Normed kept = normed(x, weight, norm);
  kept.y.reset();
  return norm_backward(dy.reshape(kept.sum.sizes()), {}, kept, &weight, nullptr, norm_args(norm)).view(x.sizes());
}

// The sums over blocks of tokens, and heads on a GPU, of a weight's gradient.
at::Tensor partial_sums(const at::Tensor& like, int64_t blocks, int64_t heads, int64_t C) {
  return at::empty({like.is_cpu() ? blocks : blocks * heads, C}, like.options().dtype(at::kFloat));
}

at::Tensor backward_in_one_pass(const at::Tensor& dqkv, kernels::QkNormRotary& op, const QkNorm& norm) {
  const kernels::Rotary& r = op.rotary;
  const int64_t blocks = kernels::blocks_of(r.tokens, kernels::kRotaryRows);
  const at::Tensor q_sums = partial_sums(dqkv, blocks, r.heads, r.head_dim),
                   k_sums = partial_sums(dqkv, blocks, r.groups, r.head_dim);
  op.q_partial = out<float>(q_sums), op.k_partial = out<float>(k_sums);
  run(dqkv, op, blocks, 1, kernels::qk_norm_backward_cpu, DRIVETRAIN_CUDA_KERNEL(qk_norm_backward_cuda),
      "norms of queries and keys backward");
  if (norm.q->trainable) add_partial_sums(*norm.q, q_sums);
  if (norm.k->trainable) add_partial_sums(*norm.k, k_sums);
  return dqkv;
}

}  // namespace

Heads split_normed_heads(const at::Tensor& given, const at::Tensor& bias, const RotaryTable& table, int64_t heads,
                         int64_t groups, const QkNorm& norm) {
  const at::Tensor qkv = given.contiguous();
  Heads h = empty_heads(qkv, heads, groups);
  if (may_be_one_pass(qkv, h, norm)) {
    const kernels::QkNormRotary op = kernel_arguments(qkv, h, bias, table, norm);
    if (fits(qkv, op)) {
      run(qkv, op, op.rotary.tokens, 16, kernels::qk_norm_forward_cpu, DRIVETRAIN_CUDA_KERNEL(qk_norm_forward_cuda),
          "norms of queries and keys");
      return h;
    }
  }
  h = split_heads(qkv, bias, {}, heads, groups);
  h.q = rotate(normed(h.q, *norm.q, norm).y.view(h.q.sizes()), table);
  h.k = rotate(normed(h.k, *norm.k, norm).y.view(h.k.sizes()), table);
  return h;
}

at::Tensor split_heads_backward(const Heads& given, const at::Tensor& given_qkv, const RotaryTable& table, Param* bias,
                                const QkNorm& norm) {
  if (!norm.q) return split_heads_backward(given, table, bias);
  const at::Tensor qkv = given_qkv.contiguous(), b = bias ? bias->tensor.detach() : at::Tensor();
  const Heads d = {given.q.contiguous(), given.k.contiguous(), given.v.contiguous()};
  if (may_be_one_pass(qkv, d, norm)) {
    const at::Tensor dqkv = at::empty_like(qkv);
    kernels::QkNormRotary op = kernel_arguments(dqkv, d, b, table, norm);
    op.x = in(qkv);
    if (fits(qkv, op)) {
      backward_in_one_pass(dqkv, op, norm);
      if (bias && bias->trainable) accumulate_bias_grad(*bias, dqkv);
      return dqkv;
    }
  }
  const Heads x = split_heads(qkv, b, {}, d.q.size(2), d.k.size(2));
  const at::Tensor dq = normed_backward(rotate_backward(d.q, table), x.q, *norm.q, norm),
                   dk = normed_backward(rotate_backward(d.k, table), x.k, *norm.k, norm);
  return split_heads_backward({dq, dk, d.v}, {}, bias);
}

}  // namespace drivetrain::ops
