// Products of matrices on CUDA that have the tanh approximation of GELU, or its gradient, in their epilogue: a product
// writes what the pass behind it would have read. They are cuBLASLt's, which LibTorch brings.
//
// Source: Hendrycks and Gimpel 2016, "Gaussian error linear units"; cuBLAS, cublasLtEpilogue_t (GELU_AUX,
// GELU_AUX_BIAS, DGELU). Sums are float32, also where a sum is split. Which kernel computes a shape, if any, is
// cuBLASLt's first answer, asked for at the first call and kept; with more than 64 shapes it is asked again.
// Legend: N rows, K columns that are summed over, M columns of the result.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

struct GeluProduct {
  const void* x = nullptr;       // [N, K]
  const void* weight = nullptr;  // forward [M, K]; backward [K, M]
  const void* bias = nullptr;    // forward: [M] or null
  void* pre = nullptr;           // [N, M]: forward := x W^T + bias; backward read
  void* out = nullptr;           // [N, M]: forward gelu(x W^T + bias); backward x W gelu'(pre), of x W in 16 bits
                                 // null: only asks whether there is a kernel, for x, pre and out on 16 bytes
  void* workspace = nullptr;     // kGeluProductWorkspace bytes, of the call alone
  int64_t n = 0, k = 0, m = 0;
  bool backward = false;
  Dtype dtype = Dtype::bf16;  // not f32
};
inline constexpr int64_t kGeluProductWorkspace = int64_t{32} << 20;  // what NVIDIA advises for an H100

// cuBLASLt wants rows of `pre` a multiple of 8 elements apart, and `pre` itself on 16 bytes.
constexpr bool gelu_product_fits(Dtype dtype, int64_t k, int64_t m) {
  return dtype != Dtype::f32 && k > 0 && m > 0 && k % 8 == 0 && m % 8 == 0;
}

// Beside those of cudaError_t:
inline constexpr int kNoSuchProduct = -1;  // cuBLASLt has none for this shape and GPU
inline constexpr int kNoCublasLt = -2;     // libcublasLt.so.13 is not found
inline constexpr int kCublasLtFails = -3;  // it gives no handle
inline constexpr int kNotStarted = -100;   // less its status: it does not start the kernel that it has named
DRIVETRAIN_KERNEL int gelu_product_cuda(const GeluProduct&, void* stream);

}  // namespace drivetrain::kernels
