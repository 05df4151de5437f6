#include "cast.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/reciprocal.h>

#include <limits>

#include <drivetrain/toolkit/ops/kernel_call.h>

#include "blocks.h"
#include "kernels/eight_bits/eight_bits.h"

namespace drivetrain::fp8 {
namespace {

at::Tensor maximum_by_kernel(const Operand& x, const at::Tensor& unless) {
  const at::TensorOptions numbers = x.x().options().dtype(at::kFloat);
  const at::Tensor maxima = at::empty({kernels::kMostMaxima}, numbers), most = at::empty({}, numbers);
  kernels::AbsoluteMaximum op;
  op.x = ops::in(x.x()), op.from = x.cast_from(), op.dtype = ops::kernel_dtype(x.x());
  op.k = x.columns(), op.n = x.rows() * op.k;
  op.maxima = ops::out<float>(maxima), op.out = ops::out<float>(most), op.unless = ops::in<float>(unless);
  check_launch(DRIVETRAIN_CUDA_KERNEL(absolute_maximum_cuda)(op, current_stream(x.x().device())), "absolute maximum");
  return most;
}

// A kernel reads rows one behind the other.
Operand dense(const Operand& x) { return x.is_tensor() ? Operand(x.x().contiguous()) : x; }

// What is wanted of both; the other is left as it is.
void cast_by_kernel(const Operand& given, const at::Tensor& scale, at::ScalarType type, Scaled* rows, Scaled* columns,
                    const at::Tensor& seen = {}) {
  const Operand x = dense(given);
  const at::Tensor inverse = at::reciprocal(scale);
  const at::TensorOptions bytes = x.x().options().dtype(type);
  kernels::EightBits op;
  op.x = ops::in(x.x()), op.from = x.cast_from(), op.dtype = ops::kernel_dtype(x.x());
  op.scale = ops::in<float>(scale), op.n = x.rows(), op.k = x.columns();
  op.padded = kernels::blocks_of(op.n, kAlignment) * kAlignment, op.e5m2 = type == at::kFloat8_e5m2;
  if (rows) *rows = {at::empty({op.n, op.k}, bytes), inverse}, op.rows = ops::out<uint8_t>(rows->values);
  if (columns)
    *columns = {at::empty({op.k, op.padded}, bytes), inverse}, op.columns = ops::out<uint8_t>(columns->values);
  at::Tensor maxima, most;
  if (seen.defined()) {
    maxima = at::empty({kernels::eight_bits_parts(op)}, scale.options()), most = at::empty({}, scale.options());
    op.maxima = ops::out<float>(maxima), op.out = ops::out<float>(most);
  }
  check_launch(DRIVETRAIN_CUDA_KERNEL(eight_bits_cuda)(op, current_stream(x.x().device())), "cast to 8 bits");
  if (at::Tensor raised = seen; raised.defined()) at::maximum_out(raised, raised, most);
}

}  // namespace

double largest(at::ScalarType type) { return type == at::kFloat8_e4m3fn ? 448 : 57344; }

Operand castable(const Operand& x, at::ScalarType type) {
  return x.is_tensor() || x.fits_cast(type == at::kFloat8_e5m2) ? x : Operand(x.value().reshape({-1, x.columns()}));
}

bool by_kernel(const Operand& x) { return !x.is_tensor() || (x.x().is_cuda() && ops::has_kernel(x.x())); }

at::Tensor absolute_maximum(const Operand& x, const at::Tensor& unless) {
  const at::NoGradGuard off;
  if (by_kernel(x)) return maximum_by_kernel(dense(x), unless);
  return at::linalg_vector_norm(x.x(), std::numeric_limits<double>::infinity(), {}, false, at::kFloat);
}

Scaled cast(const Operand& x, const at::Tensor& scale, at::ScalarType type, const at::Tensor& seen) {
  const at::NoGradGuard off;
  Scaled rows;
  if (by_kernel(x)) return cast_by_kernel(x, scale, type, &rows, nullptr, seen), rows;
  const double most = largest(type);
  return {(x.x().to(at::kFloat) * scale).clamp_(-most, most).to(type), at::reciprocal(scale)};
}

at::Tensor product(const Scaled& a, const Scaled& b, at::ScalarType out, Sums sums, const at::Tensor& bias) {
  const at::NoGradGuard off;
  if (a.block_rows > 0) return block_product(a, b, out, bias);
  if (!a.values.is_cpu())
    return at::_scaled_mm(a.values, b.values.t(), a.inverse, b.inverse,
                          bias.defined() ? std::optional(bias) : std::nullopt, {}, out, sums == Sums::fast);
  at::Tensor y = at::mm(a.values.to(at::kFloat), b.values.to(at::kFloat).t());
  y.mul_(a.inverse * b.inverse);
  if (bias.defined()) y.add_(bias);
  return y.to(out);
}

// As bytes: what copies and fills exists for them on every device.
Scaled transposed(const Scaled& t) {
  const at::NoGradGuard off;
  const int64_t more = (kAlignment - t.values.size(0) % kAlignment) % kAlignment;
  at::Tensor bytes = t.values.view(at::kByte).t();
  bytes = more > 0 ? at::constant_pad_nd(bytes, {0, more}) : bytes.contiguous();
  return {bytes.view(t.values.scalar_type()), t.block_rows > 0 ? t.inverse.t() : t.inverse, t.block_rows};
}

Scaled cast_transposed(const Operand& x, const at::Tensor& scale, at::ScalarType type) {
  const at::NoGradGuard off;
  Scaled columns;
  if (by_kernel(x)) return cast_by_kernel(x, scale, type, nullptr, &columns), columns;
  return transposed(cast(x, scale, type));
}

Both cast_both(const Operand& x, const at::Tensor& scale, at::ScalarType type, const at::Tensor& seen) {
  const at::NoGradGuard off;
  Both both;
  if (by_kernel(x)) return cast_by_kernel(x, scale, type, &both.rows, &both.columns, seen), both;
  both.rows = cast(x, scale, type);
  both.columns = transposed(both.rows);
  return both;
}

}  // namespace drivetrain::fp8
