// Layer norm and RMS norm on the CPU: a row at a time, its mean and its mean square deviation in passes over the cached
// row. Loops carry `ivdep` because outputs may be inputs, element for element; the compiler would take that for a
// dependence.
#include "kernels/norm/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/lanes.h"
#include "kernels/common/vector_math.h"

namespace drivetrain::kernels {
namespace {

const float* row_of(const void* matrix, int64_t row, int64_t columns) {
  return matrix ? static_cast<const float*>(matrix) + row * columns : nullptr;
}

DRIVETRAIN_INLINE void add(const float* x, const float* delta, float* sum, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) sum[i] = x[i] + delta[i];
}

DRIVETRAIN_INLINE float mean_square(const float* x, float mean, int64_t n) {
  const float square = sum_lanes(n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return square / static_cast<float>(n);
}

template <bool kBias>
DRIVETRAIN_INLINE void normalise(const float* x, float mean, float rstd, const float* weight, const float* bias,
                                 float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float normal = (x[i] - mean) * rstd;
    y[i] = kBias ? multiply_add(normal, weight[i], bias[i]) : normal * weight[i];
  }
}

struct ForwardRow {
  const float *x, *delta, *weight, *bias;  // delta, bias null: none
  float *sum, *y;                          // sum null: x is it
  int64_t columns;
  float epsilon;
  bool rms;
};

DRIVETRAIN_VECTOR_CLONES void forward_row(const ForwardRow& row, float* mean_out, float* rstd_out) {
  const int64_t n = row.columns;
  const float* sum = row.sum ? row.sum : row.x;
  if (row.delta) add(row.x, row.delta, row.sum, n);
  if (!row.delta && sum != row.x) std::copy_n(row.x, n, row.sum);
  const float mean = row.rms ? 0.0F : sum_lanes(n, [=](int64_t i) { return sum[i]; }) / static_cast<float>(n);
  const float rstd = 1.0F / std::sqrt(mean_square(sum, mean, n) + row.epsilon);
  row.bias ? normalise<true>(sum, mean, rstd, row.weight, row.bias, row.y, n)
           : normalise<false>(sum, mean, rstd, row.weight, nullptr, row.y, n);
  if (mean_out) *mean_out = mean;
  *rstd_out = rstd;
}

struct BackwardRow {
  const float *dy, *dsum, *sum, *weight;  // dsum null: zero
  float *dx, *dweight, *dbias;
  int64_t columns;
  float mean, rstd;
  bool rms;
};

// g = dy * weight; dx = rstd (g - mean(g) - normal mean(g normal)) + dsum
template <bool kDsum>
DRIVETRAIN_INLINE void gradients(const BackwardRow& row, float mean_g, float mean_gn) {
  const float *dy = row.dy, *dsum = row.dsum, *sum = row.sum, *weight = row.weight;
  float *dx = row.dx, *dweight = row.dweight, *dbias = row.dbias;
  const float mean = row.mean, rstd = row.rstd;
#pragma GCC ivdep
  for (int64_t i = 0; i < row.columns; ++i) {
    const float normal = (sum[i] - mean) * rstd;
    const float gradient = dy[i];
    dweight[i] = multiply_add(gradient, normal, dweight[i]);
    dbias[i] += gradient;
    const float centred = multiply_add(gradient, weight[i], -mean_g);
    const float inner = multiply_add(-normal, mean_gn, centred);
    dx[i] = kDsum ? multiply_add(inner, rstd, dsum[i]) : inner * rstd;
  }
}

DRIVETRAIN_VECTOR_CLONES void backward_row(const BackwardRow& row) {
  const int64_t n = row.columns;
  const float *dy = row.dy, *sum = row.sum, *weight = row.weight;
  const float mean = row.mean, rstd = row.rstd;
  float all_g[kLanes] = {}, all_gn[kLanes] = {};
  for_lanes(n, [&](int64_t i, int64_t lane) {
    const float g = dy[i] * weight[i];
    all_g[lane] += g;
    all_gn[lane] = multiply_add(g, (sum[i] - mean) * rstd, all_gn[lane]);
  });
  const float mean_g = row.rms ? 0.0F : fold_lanes(all_g) / static_cast<float>(n);
  const float mean_gn = fold_lanes(all_gn) / static_cast<float>(n);
  row.dsum ? gradients<true>(row, mean_g, mean_gn) : gradients<false>(row, mean_g, mean_gn);
}

DRIVETRAIN_VECTOR_CLONES void add_row(float* out, const float* row, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] += row[i];
}

}  // namespace

void norm_forward_cpu(const NormForward& op, int64_t row_begin, int64_t row_end) {
  const int64_t n = op.columns;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const ForwardRow one{.x = row_of(op.x, row, n),
                         .delta = row_of(op.delta, row, n),
                         .weight = static_cast<const float*>(op.weight),
                         .bias = static_cast<const float*>(op.bias),
                         .sum = op.sum ? static_cast<float*>(op.sum) + row * n : nullptr,
                         .y = static_cast<float*>(op.y) + row * n,
                         .columns = n,
                         .epsilon = static_cast<float>(op.epsilon),
                         .rms = op.rms};
    forward_row(one, op.mean ? op.mean + row : nullptr, op.rstd + row);
  }
}

void norm_backward_cpu(const NormBackward& op, int64_t block_begin, int64_t block_end) {
  const int64_t n = op.columns, blocks = blocks_of(op.rows, kNormRows);
  for (int64_t block = block_begin; block < block_end; ++block) {
    float *dweight = op.partial + block * n, *dbias = op.partial + (blocks + block) * n;
    std::fill_n(dweight, n, 0.0F);
    std::fill_n(dbias, n, 0.0F);
    const int64_t last = std::min(op.rows, (block + 1) * kNormRows);
    for (int64_t row = block * kNormRows; row < last; ++row) {
      backward_row({.dy = row_of(op.dy, row, n),
                    .dsum = row_of(op.dsum, row, n),
                    .sum = row_of(op.sum, row, n),
                    .weight = static_cast<const float*>(op.weight),
                    .dx = static_cast<float*>(op.dx) + row * n,
                    .dweight = dweight,
                    .dbias = dbias,
                    .columns = n,
                    .mean = op.rms ? 0.0F : op.mean[row],
                    .rstd = op.rstd[row],
                    .rms = op.rms});
    }
  }
}

// A stretch of columns at a time is summed on the stack, for `out` is added to once.
void column_sum_cpu(const ColumnSum& op, int64_t column_begin, int64_t column_end) {
  constexpr int64_t kStretch = 1024;
  float sums[kStretch];
  for (int64_t begin = column_begin; begin < column_end; begin += kStretch) {
    const int64_t n = std::min(kStretch, column_end - begin);
    std::fill_n(sums, n, 0.0F);
    for (int64_t row = 0; row < op.rows; ++row) add_row(sums, op.partial + row * op.columns + begin, n);
    float* out = static_cast<float*>(op.out) + begin;
    op.add ? add_row(out, sums, n) : static_cast<void>(std::copy_n(sums, n, out));
  }
}

}  // namespace drivetrain::kernels
