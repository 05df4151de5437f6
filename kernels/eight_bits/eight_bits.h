// Tensors in 8 bits, and the largest absolute value that a scale comes from, on CUDA alone: LibTorch has both, in
// passes that move 29 bytes per element of 16 bits, where 5 are enough, and 3 where the scale is known.
//
// Source: Micikevicius et al. 2022, "FP8 formats for deep learning": e4m3 (largest number 448) and e5m2 (57344).
// Legend: N rows, K columns.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/eight_bits/cast_from.h"

namespace drivetrain::kernels {

// out := max |x|; NaN if x holds one. The order of maxima changes nothing.
inline constexpr int64_t kMostMaxima = 1024;
struct AbsoluteMaximum {
  const void* x = nullptr;   // [n]
  float* maxima = nullptr;   // [kMostMaxima]: of parts
  float* out = nullptr;      // one number
  int64_t n = 0;             // 0: out is 0
  Dtype dtype = Dtype::f32;  // of x
  // One number, or null: where it is above 0, x is not read and out is 0. What it is the device knows.
  const float* unless = nullptr;
  CastFrom from = {};  // where cast_from_fits: x is of rows of k numbers, n in all
  int64_t k = 0;
};
DRIVETRAIN_KERNEL int absolute_maximum_cuda(const AbsoluteMaximum&, void* stream);

// x times scale in float32, clamped to what the type holds, rounded to nearest with ties to even; NaN stays NaN.
struct EightBits {
  const void* x = nullptr;       // [N, K], or what the numbers are computed `from`
  const float* scale = nullptr;  // one number
  uint8_t* rows = nullptr;       // [N, K], or null
  uint8_t* columns = nullptr;    // [K, padded], or null: transposed, zeros from N on; a multiple of 16 bytes
  int64_t n = 0, k = 0;
  int64_t padded = 0;  // at least N, a multiple of 16
  bool e5m2 = false;   // else e4m3
  Dtype dtype = Dtype::f32;
  // Both or neither: max |x| of the same pass, as AbsoluteMaximum has it. x that is not finite becomes NaN then, so
  // that a scale that knows nothing of it hides nothing.
  float* maxima = nullptr;  // [eight_bits_parts]
  float* out = nullptr;     // one number
  CastFrom from = {};       // where cast_from_fits
};
inline constexpr int64_t kEightBitsRows = 128, kEightBitsColumns = 64;  // that a block casts
constexpr int64_t eight_bits_parts(const EightBits& op) {
  return blocks_of(op.k, kEightBitsColumns) * blocks_of(op.columns ? op.padded : op.n, kEightBitsRows);
}
DRIVETRAIN_KERNEL int eight_bits_cuda(const EightBits&, void* stream);

}  // namespace drivetrain::kernels
