// Layer norm and RMS norm of x + delta, and their backward.
// One pass forward: the sum on the residual stream and its norm.
//
// Source: Ba et al. 2016, "Layer normalization"; Zhang and Sennrich 2019, "Root mean square layer normalization".
// Legend: N rows, D columns. sum = x + delta; mean over D (0 for rms); rstd = 1 / sqrt(mean((sum - mean)^2) + epsilon);
// y = (sum - mean) * rstd * (offset + weight) + bias.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

struct NormForward {
  const void* x = nullptr;       // [N, D]
  const void* delta = nullptr;   // [N, D] or null
  const void* weight = nullptr;  // [D]
  const void* bias = nullptr;    // [D] or null
  void* sum = nullptr;           // [N, D]; or null where delta is: x is the sum then. May be x
  void* y = nullptr;             // [N, D]; on CUDA or null: sum, mean and rstd alone
  float* mean = nullptr;         // [N]; or null for rms
  float* rstd = nullptr;         // [N]
  int64_t rows = 0, columns = 0;
  double epsilon = 1e-5;
  bool rms = false;
  Dtype dtype = Dtype::f32;  // of x, delta, weight, bias, sum, y
  float offset = 0;
};
DRIVETRAIN_KERNEL void norm_forward_cpu(const NormForward&, int64_t row_begin, int64_t row_end);
DRIVETRAIN_KERNEL int norm_forward_cuda(const NormForward&, void* stream);

// dx = dsum + d norm / d sum. Sums over rows of dweight and dbias are taken in two fixed steps:
// per block of rows into `partial`, then over blocks in order by column_sum.
inline constexpr int64_t kNormRows = 64;
// Rows of such a block on CUDA; on the CPU it is kNormRows. A multiprocessor has a block at a time, and few rows should
// still be 128 blocks. It goes by the number of rows alone: on every GPU the sums have the same bits.
constexpr int64_t norm_rows_cuda(int64_t rows) {
  return rows >= 128 * kNormRows ? kNormRows : rows >= 64 * kNormRows ? kNormRows / 2 : kNormRows / 4;
}
struct NormBackward {
  const void* dy = nullptr;      // [N, D]
  const void* dsum = nullptr;    // [N, D] or null: the gradient that reaches the sum along the residual stream
  const void* sum = nullptr;     // [N, D]
  const void* weight = nullptr;  // [D]
  const float* mean = nullptr;   // [N]; or null for rms
  const float* rstd = nullptr;   // [N]
  void* dx = nullptr;            // [N, D]; may be dsum or dy
  float* partial = nullptr;      // [2, blocks, D]: of dweight, then of dbias
  int64_t rows = 0, columns = 0;
  bool rms = false;
  Dtype dtype = Dtype::f32;
  float offset = 0;
};
// blocks of kNormRows
DRIVETRAIN_KERNEL void norm_backward_cpu(const NormBackward&, int64_t block_begin, int64_t block_end);
DRIVETRAIN_KERNEL int norm_backward_cuda(const NormBackward&, void* stream);

// out [columns] := or += sum over `rows` of partial [rows, columns], in a fixed order: of row on the CPU, where rows of
// 16 bits are activations and are added in blocks of kNormRows; on CUDA rows i, i + 32, ... in order, then a fold.
struct ColumnSum {
  const void* partial = nullptr;
  int64_t rows = 0, columns = 0;
  void* out = nullptr;
  bool add = false;
  Dtype dtype = Dtype::f32;          // of out; on the CPU only that
  Dtype partial_dtype = Dtype::f32;  // on CUDA only that
};
DRIVETRAIN_KERNEL void column_sum_cpu(const ColumnSum&, int64_t column_begin, int64_t column_end);
DRIVETRAIN_KERNEL int column_sum_cuda(const ColumnSum&, void* stream);

// The first step of such a sum over activations on CUDA, which column_sum then ends: sums over kNormRows rows each.
// Rows i, i + 8, ... of a block are added in order, and those eight sums in order.
struct ColumnParts {
  const void* x = nullptr;   // [N, D]
  float* partial = nullptr;  // [blocks_of(N, kNormRows), D]
  int64_t rows = 0, columns = 0;
  Dtype dtype = Dtype::f32;  // of x
};
DRIVETRAIN_KERNEL int column_parts_cuda(const ColumnParts&, void* stream);

}  // namespace drivetrain::kernels
