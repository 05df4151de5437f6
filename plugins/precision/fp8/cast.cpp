#include "cast.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/reciprocal.h>

#include <limits>

namespace drivetrain::fp8 {

double largest(at::ScalarType type) { return type == at::kFloat8_e4m3fn ? 448 : 57344; }

at::Tensor absolute_maximum(const at::Tensor& x) {
  const at::NoGradGuard off;
  return at::linalg_vector_norm(x, std::numeric_limits<double>::infinity(), {}, false, at::kFloat);
}

Scaled cast(const at::Tensor& x, const at::Tensor& scale, at::ScalarType type) {
  const at::NoGradGuard off;
  const double most = largest(type);
  return {(x.to(at::kFloat) * scale).clamp_(-most, most).to(type), at::reciprocal(scale)};
}

at::Tensor product(const Scaled& a, const Scaled& b, at::ScalarType out, Sums sums, const at::Tensor& bias) {
  const at::NoGradGuard off;
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
  return {bytes.view(t.values.scalar_type()), t.inverse};
}

}  // namespace drivetrain::fp8
