// Tensors in e4m3 with a scale for each block of numbers, as products of such blocks want them: on CUDA alone, from
// sm_90 on, where these products are.
//
// Source: DeepSeek-AI 2024, "DeepSeek-V3 technical report", section 3.3.2, with powers of two as scales. Layouts of the
// scales: NVIDIA's cuBLAS documentation, "128-element 1D and 128x128 2D Block Scaling For FP8 Data Types".
// Legend: N rows, K columns; up(n, m): n rounded up to a multiple of m.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/eight_bits/cast_from.h"

namespace drivetrain::kernels {

inline constexpr int64_t kScaleBlock = 128;
// What values and scales are padded to. cuBLAS wants sizes in 16 bytes, and starts of rows of scales in 16 bytes too.
inline constexpr int64_t kScaledRows = 16, kScalesTogether = 4;
constexpr int64_t rounded_up(int64_t size, int64_t to) { return blocks_of(size, to) * to; }

// Values x times scale in float32, rounded to nearest with ties to even. A block's scale is the largest power of two up
// to 2^126 with which its largest |x| fits e4m3; 1 for zeros; NaN where one x is not finite, and all of its values
// then. `inverses` are 1 / scale.
//
// As x lies, blocks are 128 numbers of a row (or 128 x 128, `square`), for products that sum over columns; transposed,
// 128 of a column, for those that sum over rows. For R rows and S summed numbers, of x or of x transposed:
//   values    [up(R, 16), up(S, 128)], zeros outside of x
//   inverses  [blocks of S, up(R, 16)]; square: [blocks of R, up(blocks of S, 4)]; 1 outside of x
// Starts are multiples of 16 bytes. Each pair of pointers, or neither of it.
struct EightBitsBlocks {
  const void* x = nullptr;  // [N, K], or what the numbers are computed `from`
  uint8_t* rows = nullptr;
  float* row_inverses = nullptr;
  uint8_t* columns = nullptr;
  float* column_inverses = nullptr;
  int64_t n = 0, k = 0;
  bool square = false;
  Dtype dtype = Dtype::f32;
  CastFrom from = {};  // where cast_from_fits
};
inline constexpr int kNoProductsOfBlocks = 209;  // cudaErrorNoKernelImageForDevice: the GPU is older than sm_90
DRIVETRAIN_KERNEL int eight_bits_blocks_cuda(const EightBitsBlocks&, void* stream);

}  // namespace drivetrain::kernels
