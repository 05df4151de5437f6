// Matrix products with few rows on the CPU (kernels/product/few_rows.h), divided over threads. Thread: any; loops on
// LibTorch's pool. Results do not depend on the number of threads. No autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace drivetrain {

// x [N, I] W^T + bias, weight [O, I]; no value with more rows than pay, and for what the kernel does not read as it is.
std::optional<at::Tensor> few_rows_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace drivetrain
