#include <drivetrain/toolkit/layers/few_rows.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/product/few_rows.h"

namespace drivetrain {
namespace {

// Weights that a thread reads at least: less is done before another one has woken up.
constexpr int64_t kLeastWeights = int64_t{1} << 15;

bool takes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::ScalarType type = x.scalar_type();
  const bool known = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  return x.is_cpu() && known && x.size(0) > 0 && x.size(0) <= kernels::kFewRows && weight.scalar_type() == type &&
         weight.numel() > 0 && weight.stride(1) == 1 && (!bias.defined() || bias.scalar_type() == type);
}

kernels::Dtype kernel_type(at::ScalarType type) {
  return type == at::kFloat ? kernels::Dtype::f32 : type == at::kHalf ? kernels::Dtype::f16 : kernels::Dtype::bf16;
}

}  // namespace

std::optional<at::Tensor> few_rows_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!takes(x, weight, bias)) return std::nullopt;
  const at::Tensor a = x.contiguous(), add = bias.defined() ? bias.contiguous() : bias;
  at::Tensor c = at::empty({a.size(0), weight.size(0)}, a.options());
  kernels::FewRowsProduct op;
  op.a = a.const_data_ptr(), op.b = weight.const_data_ptr(), op.b_stride = weight.stride(0);
  op.bias = add.defined() ? add.const_data_ptr() : nullptr, op.c = c.mutable_data_ptr();
  op.m = a.size(0), op.n = weight.size(0), op.k = weight.size(1);
  op.dtype = kernel_type(a.scalar_type());
  at::parallel_for(0, op.n, std::max<int64_t>(kLeastWeights / op.k, 1),
                   [&](int64_t begin, int64_t end) { kernels::few_rows_product_cpu(op, begin, end); });
  return c;
}

}  // namespace drivetrain
