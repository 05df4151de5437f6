#include <drivetrain/toolkit/layers/gelu_linear.h>

#include <ATen/ops/empty.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/product/gelu_product.h"

namespace drivetrain {
namespace {

using ops::in, ops::out;

// Two of cuBLASLt's statuses tell most often of a kernel before this one, and are told as LibTorch tells them.
[[noreturn]] void not_started(int status) {
  constexpr int kExecutionFailed = 13, kInternalError = 14;
  TORCH_CHECK(status != kExecutionFailed, "CUBLAS_STATUS_EXECUTION_FAILED when calling cublasLtMatmul with GELU");
  TORCH_CHECK(status != kInternalError, "CUBLAS_STATUS_INTERNAL_ERROR when calling cublasLtMatmul with GELU");
  throw fail(ErrorCode::config, "cuBLASLt does not start a product with GELU that it has named (its status ", status,
             "); leave out \"gelu_fusion\"");
}

// False: cuBLASLt has no such product on this GPU.
bool call(const kernels::GeluProduct& op, const at::Device& device) {
  const int status = DRIVETRAIN_CUDA_KERNEL(gelu_product_cuda)(op, current_stream(device));
  if (status == kernels::kNoSuchProduct) return false;
  if (status == kernels::kNoCublasLt || status == kernels::kCublasLtFails)
    throw fail(ErrorCode::config, "products with GELU want cuBLASLt, ",
               status == kernels::kNoCublasLt ? "and libcublasLt.so.13, which LibTorch for CUDA 13 brings, is not found"
                                              : "which does not start on this GPU (cublasLtCreate)",
               "; leave out \"gelu_fusion\"");
  if (status <= kernels::kNotStarted) not_started(kernels::kNotStarted - status);
  check_launch(status, "product with GELU");
  return true;
}

// Returns what it writes.
at::Tensor launch(kernels::GeluProduct op, const at::Tensor& given, const at::Tensor& weight, int64_t columns) {
  const at::Tensor x = given.contiguous(), w = weight.detach().contiguous();
  const at::Tensor y = at::empty({x.size(0), columns}, x.options());
  const at::Tensor workspace = at::empty({kernels::kGeluProductWorkspace}, x.options().dtype(at::kByte));
  op.x = in(x), op.weight = in(w), op.out = out(y), op.workspace = out(workspace);
  op.n = x.size(0), op.k = x.size(1), op.m = columns, op.dtype = ops::kernel_dtype(x);
  if (!call(op, x.device()))
    throw fail(ErrorCode::config, "cuBLASLt has no product with GELU", op.backward ? "'s gradient" : "", " of [", op.n,
               ", ", op.k, "] and [", op.k, ", ", op.m, "] in ", c10::toString(x.scalar_type()),
               " for this GPU; leave out \"gelu_fusion\"");
  return y;
}

}  // namespace

const GeluLinear2* gelu_of(const Linear& layer, at::DeviceType device, at::ScalarType dtype) {
  const auto* const gelu = dynamic_cast<const GeluLinear2*>(&layer);
  return gelu && gelu->has_gelu(device, dtype) ? gelu : nullptr;
}

bool gelu_product_fits(at::DeviceType device, at::ScalarType dtype, int64_t in, int64_t out) {
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  return kernels::kWithCuda && device == at::kCUDA && half && kernels::gelu_product_fits(kernels::Dtype::bf16, in, out);
}

bool gelu_product_found(const at::Tensor& weight, const at::Tensor& bias, int64_t rows, bool backward) {
  kernels::GeluProduct op;
  op.weight = in(weight), op.bias = in(bias), op.backward = backward, op.dtype = ops::kernel_dtype(weight);
  op.n = rows, op.k = weight.size(backward ? 0 : 1), op.m = weight.size(backward ? 1 : 0);
  return call(op, weight.device());
}

at::Tensor gelu_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& pre) {
  pre = at::empty({x.size(0), weight.size(0)}, x.options());
  kernels::GeluProduct op;
  op.bias = in(bias), op.pre = out(pre);
  return launch(op, x, weight, weight.size(0));
}

at::Tensor gelu_product_backward(const at::Tensor& dy, const at::Tensor& weight, const at::Tensor& given) {
  const at::Tensor pre = given.contiguous();
  kernels::GeluProduct op;
  op.pre = const_cast<void*>(in(pre)), op.backward = true;  // is read
  return launch(op, dy, weight, weight.size(1));
}

}  // namespace drivetrain
