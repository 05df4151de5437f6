// Matrix products by the processor's 16-bit instructions (kernels/product): which of them go there, and how their tasks
// are divided over threads. Thread: any; loops on LibTorch's pool. Results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace drivetrain {

// How this processor multiplies float32 matrices: as they are, split into two bfloat16 each, or rounded to one.
enum class FloatProducts { whole, split, rounded };
// `precision`: PyTorch's float32_matmul_precision; without it that of LibTorch's context.
FloatProducts float_products(const std::string& precision);
FloatProducts float_products();

// The type in which this processor multiplies matrices of `dtype`, and by what: for the start of a run.
struct ProductsText {
  std::string type, how;
};
ProductsText products_text(at::ScalarType dtype, const std::string& precision);

// Whether products of this type are those of short_product.
bool multiplies_short(at::ScalarType type);

// a [M, K] b [K, N] + bias [N] in the dtype of a and b, if the processor has instructions for it; else no value.
std::optional<at::Tensor> short_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

// y := a [M, K] b [K, N] into rows of dense elements of their dtype, where few rows meet a large b: what of b is stored
// by columns is then read as it lies. False if the processor has no instructions for it.
bool short_product_into(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b);

// sums [M, N] float32 := or += a [M, K] b [K, N]; false if the processor has no instructions for it.
bool add_short_product(at::Tensor& sums, bool add, const at::Tensor& a, const at::Tensor& b);

}  // namespace drivetrain
