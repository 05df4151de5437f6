#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

#include <drivetrain/toolkit/ops/ops.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/norm/norm.h"

namespace drivetrain::ops {
namespace {

at::ScalarType statistics_dtype(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// --- by LibTorch's operators: float64
at::Tensor normalised(const Normed& kept) {
  at::Tensor s = kept.sum.to(kept.rstd.scalar_type());
  if (kept.mean.defined()) s = s - kept.mean.view(s.sizes().slice(0, s.dim() - 1)).unsqueeze(-1);
  return s * kept.rstd.view(s.sizes().slice(0, s.dim() - 1)).unsqueeze(-1);
}

// What x_hat is multiplied by: a vector, also where there is no weight.
struct Gain {
  Gain(const at::Tensor& weight, const at::Tensor& x, double given_offset)
      : vector(weight.defined() ? weight.detach() : at::ones({x.size(-1)}, x.options())),
        offset(weight.defined() ? given_offset : 0) {}
  at::Tensor in(at::ScalarType dtype) const {
    return offset == 0 ? vector.to(dtype) : at::add(vector.to(dtype), offset);
  }
  at::Tensor vector;
  double offset;
};

at::Tensor apply_gain(const at::Tensor& x_hat, const Gain& gain, const at::Tensor& bias, at::ScalarType dtype) {
  at::Tensor y = x_hat * gain.in(x_hat.scalar_type());
  if (bias.defined()) y = y + bias.to(x_hat.scalar_type());
  return y.to(dtype);
}

Normed norm_by_operators(const at::Tensor& x, const at::Tensor& delta, const Gain& gain, const at::Tensor& bias,
                         const NormArgs& args) {
  Normed n;
  n.sum = delta.defined() ? at::add(x, delta) : x;
  at::Tensor s = n.sum.to(statistics_dtype(x));
  if (!args.rms) {
    n.mean = s.mean(-1);
    s = s - n.mean.unsqueeze(-1);
    n.mean = n.mean.reshape({-1});
  }
  n.rstd = at::rsqrt((s * s).mean(-1) + args.epsilon).reshape({-1});
  n.y = apply_gain(normalised(n), gain, bias, x.scalar_type());
  return n;
}

at::Tensor backward_by_operators(const at::Tensor& dy, const at::Tensor& dsum, const Normed& kept, const Gain& gain,
                                 Param* weight, Param* bias) {
  const at::Tensor x_hat = normalised(kept), d = dy.to(x_hat.scalar_type());
  const at::Tensor g = d * gain.in(x_hat.scalar_type());
  at::Tensor dx = g - x_hat * (g * x_hat).mean(-1, true);
  if (kept.mean.defined()) dx = dx - g.mean(-1, true);
  dx = dx * kept.rstd.view(dx.sizes().slice(0, dx.dim() - 1)).unsqueeze(-1);
  if (dsum.defined()) dx = dx + dsum.to(dx.scalar_type());
  const int64_t D = dy.size(-1);
  if (weight && weight->trainable) accumulate_grad(*weight, (d * x_hat).reshape({-1, D}).sum(0));
  if (bias && bias->trainable) accumulate_grad(*bias, d.reshape({-1, D}).sum(0));
  return dx.to(dy.scalar_type());
}

bool takes(const at::Tensor& x, const Gain& gain) {
  return has_kernel(x) && gain.vector.scalar_type() == x.scalar_type();
}

kernels::NormForward forward_arguments(const at::Tensor& x, const Gain& gain, const at::Tensor& bias,
                                       const NormArgs& args) {
  kernels::NormForward op;
  op.x = in(x), op.weight = in(gain.vector), op.offset = static_cast<float>(gain.offset), op.bias = in(bias);
  op.columns = x.size(-1), op.rows = x.numel() / op.columns;
  op.epsilon = args.epsilon, op.rms = args.rms, op.dtype = kernel_dtype(x);
  return op;
}

void run_forward(const at::Tensor& like, const kernels::NormForward& op) {
  run(like, op, op.rows, 16, kernels::norm_forward_cpu, DRIVETRAIN_CUDA_KERNEL(norm_forward_cuda), "norm");
}

}  // namespace

Normed norm(const at::Tensor& given, const at::Tensor& delta, const at::Tensor& weight, const at::Tensor& bias,
            const NormArgs& args) {
  const Gain gain(weight, given, args.offset);
  Normed n;
  if (!takes(given, gain)) {
    n = norm_by_operators(given, delta, gain, bias, args);
    if (args.leave_y) n.y.reset();
    return n;
  }
  const at::Tensor x = given.contiguous(), d = delta.defined() ? delta.contiguous() : delta;
  kernels::NormForward op = forward_arguments(x, gain, bias, args);
  if (!args.leave_y || x.is_cpu()) n.y = at::empty_like(x);  // the CPU's kernel always writes it
  n.sum = d.defined() ? at::empty_like(x) : x;
  n.rstd = at::empty({op.rows}, x.options().dtype(at::kFloat));
  if (!args.rms) n.mean = at::empty({op.rows}, n.rstd.options());
  op.delta = in(d), op.sum = d.defined() ? out(n.sum) : nullptr, op.y = out(n.y);
  op.mean = out<float>(n.mean), op.rstd = out<float>(n.rstd);
  run_forward(x, op);
  if (args.leave_y) n.y.reset();
  return n;
}

at::Tensor norm_again(const Normed& kept, const at::Tensor& weight, const at::Tensor& bias, const NormArgs& args) {
  const Gain gain(weight, kept.sum, args.offset);
  if (!takes(kept.sum, gain)) return apply_gain(normalised(kept), gain, bias, kept.sum.scalar_type());
  kernels::NormForward op = forward_arguments(kept.sum, gain, bias, args);
  const at::Tensor y = at::empty_like(kept.sum);
  const at::Tensor mean = args.rms ? at::Tensor() : at::empty_like(kept.mean), rstd = at::empty_like(kept.rstd);
  op.y = out(y), op.mean = out<float>(mean), op.rstd = out<float>(rstd);
  run_forward(kept.sum, op);
  return y;
}

at::Tensor norm_backward(const at::Tensor& given_dy, const at::Tensor& given_dsum, const Normed& kept, Param* weight,
                         Param* bias, const NormArgs& args) {
  const Gain gain(weight ? weight->tensor : at::Tensor(), given_dy, args.offset);
  if (!takes(given_dy, gain)) return backward_by_operators(given_dy, given_dsum, kept, gain, weight, bias);
  const at::Tensor dy = given_dy.contiguous(), dsum = given_dsum.defined() ? given_dsum.contiguous() : given_dsum;
  const at::Tensor dx = at::empty_like(dy);
  kernels::NormBackward op;
  op.columns = dy.size(-1), op.rows = dy.numel() / op.columns;
  const int64_t of_block = dy.is_cuda() ? kernels::norm_rows_cuda(op.rows) : kernels::kNormRows;
  const int64_t blocks = kernels::blocks_of(op.rows, of_block);
  const at::Tensor partial = at::empty({2, blocks, op.columns}, dy.options().dtype(at::kFloat));
  op.dy = in(dy), op.dsum = in(dsum), op.sum = in(kept.sum), op.weight = in(gain.vector);
  op.mean = in<float>(kept.mean), op.rstd = in<float>(kept.rstd);
  op.dx = out(dx), op.partial = out<float>(partial);
  op.offset = static_cast<float>(gain.offset), op.rms = args.rms, op.dtype = kernel_dtype(dy);
  run(dy, op, blocks, 1, kernels::norm_backward_cpu, DRIVETRAIN_CUDA_KERNEL(norm_backward_cuda), "norm backward");
  if (weight && weight->trainable) add_partial_sums(*weight, partial[0]);
  if (bias && bias->trainable) add_partial_sums(*bias, partial[1]);
  return dx;
}

}  // namespace drivetrain::ops
