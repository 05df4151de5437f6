// Tensors in 8 bits and their products.
//
// A tensor is multiplied by a scale, clamped to what the type holds and rounded to nearest, ties to even; a product
// divides by the scales of its operands. On CUDA it is at::_scaled_mm (cuBLASLt). On the CPU the operands are widened,
// which is exact, multiplied with sums in float32, and the result is rounded once, as there.
//
// Legend: N rows, K summed, M columns. Thread: main; backward on autograd's. Stream: the current one. No autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <drivetrain/toolkit/ops/operand.h>

namespace drivetrain::fp8 {

using ops::Operand;

constexpr int64_t kAlignment = 16;  // bytes; what cuBLASLt asks of both sizes of an operand
constexpr int kOldestArch = 89;     // GPUs that multiply in 8 bits begin with sm_89
// Those that do so with scales of blocks, and since when: cuBLASLt's.
constexpr int kArchOfBlocks = 90, kCudaOfBlocks = 12090;

double largest(at::ScalarType type);  // 448 of e4m3, 57344 of e5m2

constexpr int64_t kBlock = 128;  // numbers of a row that share a scale, where tensors have scales of blocks

struct Scaled {
  at::Tensor values;       // 8 bits
  at::Tensor inverse;      // float32, 1 / scale: a scalar, or of blocks (blocks.h)
  int64_t block_rows = 0;  // 0: one scale for all
  int64_t rows = -1;       // of blocks as they lie on CUDA: those of the values that are no padding; else -1
};

// x itself where a kernel of ours computes it in the pass that casts it to `type`, else its value.
Operand castable(const Operand& x, at::ScalarType type);
// Whether a castable x is cast by our kernels: on CUDA. These raise `seen` themselves, in the same pass, and make NaN
// of numbers that are not finite. On the CPU numbers are checked, and LibTorch's passes will do.
bool by_kernel(const Operand& x);

// Below, x is castable to the type: [N, K], or [..., K] where it is computed.

// max |x|, a float32 scalar; NaN if x holds one. `unless`, if it is given, is a float32 scalar: where it is above 0, x
// need not be read, and the result may be 0.
at::Tensor absolute_maximum(const Operand& x, const at::Tensor& unless = {});
// `scale`: a float32 scalar. `seen`: undefined, or, where by_kernel, a float32 scalar that becomes max |x| if that is
// larger.
Scaled cast(const Operand& x, const at::Tensor& scale, at::ScalarType type, const at::Tensor& seen = {});
// What transposed() makes of it, and both: on CUDA in one pass over x.
Scaled cast_transposed(const Operand& x, const at::Tensor& scale, at::ScalarType type);
struct Both {
  Scaled rows, columns;
};
Both cast_both(const Operand& x, const at::Tensor& scale, at::ScalarType type, const at::Tensor& seen = {});

enum class Sums { fast, precise };  // of the tensor cores; one and the same on the CPU

// a [N, K] b [M, K]^T + bias, [N, M] in `out`. bias [M] of type `out`, or undefined.
at::Tensor product(const Scaled& a, const Scaled& b, at::ScalarType out, Sums sums, const at::Tensor& bias = {});
// [N, M] -> [M, N], with columns of zeros up to a multiple of kAlignment. Blocks are square.
Scaled transposed(const Scaled& t);

}  // namespace drivetrain::fp8
