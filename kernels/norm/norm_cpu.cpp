// Layer norm and RMS norm on the CPU: a row at a time, its mean and its mean square deviation in passes over the cached
// row. Loops carry `ivdep` because outputs may be inputs, element for element; the compiler would take that for a
// dependence.
#include "kernels/norm/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/lanes.h"
#include "kernels/common/narrow.h"
#include "kernels/common/vector_math.h"

namespace drivetrain::kernels {
namespace {

template <class T>
DRIVETRAIN_INLINE void add(const T* x, const T* delta, T* sum, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) sum[i] = narrowed<T>(widened(x[i]) + widened(delta[i]));
}

template <class T>
DRIVETRAIN_INLINE float mean_square(const T* x, float mean, int64_t n) {
  const float square = sum_lanes(n, [=](int64_t i) { return (widened(x[i]) - mean) * (widened(x[i]) - mean); });
  return square / static_cast<float>(n);
}

template <bool kBias, class T>
DRIVETRAIN_INLINE void normalise(const T* x, float mean, float rstd, const T* weight, float offset, const T* bias, T* y,
                                 int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float normal = (widened(x[i]) - mean) * rstd, gain = offset + widened(weight[i]);
    y[i] = narrowed<T>(kBias ? multiply_add(normal, gain, widened(bias[i])) : normal * gain);
  }
}

struct ForwardRow {
  const void *x, *delta, *weight, *bias;  // delta, bias null: none
  void *sum, *y;                          // sum null: x is it
  int64_t columns;
  float epsilon, offset;
  bool rms;
  Dtype dtype;
};

template <class T>
DRIVETRAIN_INLINE void forward_in(const ForwardRow& row, float* mean_out, float* rstd_out) {
  const int64_t n = row.columns;
  const T *x = static_cast<const T*>(row.x), *weight = static_cast<const T*>(row.weight),
          *bias = static_cast<const T*>(row.bias);
  T *const own_sum = static_cast<T*>(row.sum), *const y = static_cast<T*>(row.y);
  const T* sum = own_sum ? own_sum : x;
  if (row.delta) add(x, static_cast<const T*>(row.delta), own_sum, n);
  if (!row.delta && sum != x) std::copy_n(x, n, own_sum);
  const float mean = row.rms ? 0.0F : sum_lanes(n, [=](int64_t i) { return widened(sum[i]); }) / static_cast<float>(n);
  const float rstd = 1.0F / std::sqrt(mean_square(sum, mean, n) + row.epsilon);
  bias ? normalise<true>(sum, mean, rstd, weight, row.offset, bias, y, n)
       : normalise<false>(sum, mean, rstd, weight, row.offset, bias, y, n);
  if (mean_out) *mean_out = mean;
  *rstd_out = rstd;
}

DRIVETRAIN_VECTOR_CLONES void forward_row(const ForwardRow& row, float* mean_out, float* rstd_out) {
  with_elements(
      row.dtype, [&]<class T>(T) __attribute__((always_inline)) { forward_in<T>(row, mean_out, rstd_out); });
}

struct BackwardRow {
  const void *dy, *dsum, *sum, *weight;  // dsum null: zero
  void* dx;
  float *dweight, *dbias;
  int64_t columns;
  float mean, rstd, offset;
  bool rms;
  Dtype dtype;
};

// g = dy * (offset + weight); dx = rstd (g - mean(g) - normal mean(g normal)) + dsum
template <bool kDsum, class T>
DRIVETRAIN_INLINE void gradients(const BackwardRow& row, float mean_g, float mean_gn) {
  const T *dy = static_cast<const T*>(row.dy), *dsum = static_cast<const T*>(row.dsum),
          *sum = static_cast<const T*>(row.sum), *weight = static_cast<const T*>(row.weight);
  T* const dx = static_cast<T*>(row.dx);
  float *dweight = row.dweight, *dbias = row.dbias;
  const float mean = row.mean, rstd = row.rstd, offset = row.offset;
#pragma GCC ivdep
  for (int64_t i = 0; i < row.columns; ++i) {
    const float normal = (widened(sum[i]) - mean) * rstd;
    const float gradient = widened(dy[i]);
    dweight[i] = multiply_add(gradient, normal, dweight[i]);
    dbias[i] += gradient;
    const float centred = multiply_add(gradient, offset + widened(weight[i]), -mean_g);
    const float inner = multiply_add(-normal, mean_gn, centred);
    dx[i] = narrowed<T>(kDsum ? multiply_add(inner, rstd, widened(dsum[i])) : inner * rstd);
  }
}

template <class T>
DRIVETRAIN_INLINE void backward_in(const BackwardRow& row) {
  const int64_t n = row.columns;
  const T *dy = static_cast<const T*>(row.dy), *sum = static_cast<const T*>(row.sum),
          *weight = static_cast<const T*>(row.weight);
  const float mean = row.mean, rstd = row.rstd, offset = row.offset;
  float all_g[kLanes] = {}, all_gn[kLanes] = {};
  for_lanes(n, [&](int64_t i, int64_t lane) {
    const float g = widened(dy[i]) * (offset + widened(weight[i]));
    all_g[lane] += g;
    all_gn[lane] = multiply_add(g, (widened(sum[i]) - mean) * rstd, all_gn[lane]);
  });
  const float mean_g = row.rms ? 0.0F : fold_lanes(all_g) / static_cast<float>(n);
  const float mean_gn = fold_lanes(all_gn) / static_cast<float>(n);
  row.dsum ? gradients<true, T>(row, mean_g, mean_gn) : gradients<false, T>(row, mean_g, mean_gn);
}

DRIVETRAIN_VECTOR_CLONES void backward_row(const BackwardRow& row) {
  with_elements(
      row.dtype, [&]<class T>(T) __attribute__((always_inline)) { backward_in<T>(row); });
}

template <class T>
DRIVETRAIN_INLINE void add_elements(float* out, const T* row, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] += widened(row[i]);
}

DRIVETRAIN_VECTOR_CLONES void add_row(float* out, const void* row, int64_t n, Dtype dtype) {
  with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) { add_elements(out, static_cast<const T*>(row), n); });
}

constexpr int64_t kStretch = 1024;

// sums [n] := rows [begin, end) of columns from `first`.
void sum_rows(const ColumnSum& op, int64_t begin, int64_t end, int64_t first, int64_t n, float* sums) {
  std::fill_n(sums, n, 0.0F);
  for (int64_t row = begin; row < end; ++row)
    add_row(sums, row_of(op.partial, row * op.columns + first, 1, op.partial_dtype), n, op.partial_dtype);
}

}  // namespace

void norm_forward_cpu(const NormForward& op, int64_t row_begin, int64_t row_end) {
  const int64_t n = op.columns;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const ForwardRow one{.x = row_of(op.x, row, n, op.dtype),
                         .delta = row_of(op.delta, row, n, op.dtype),
                         .weight = op.weight,
                         .bias = op.bias,
                         .sum = row_of(op.sum, row, n, op.dtype),
                         .y = row_of(op.y, row, n, op.dtype),
                         .columns = n,
                         .epsilon = static_cast<float>(op.epsilon),
                         .offset = op.offset,
                         .rms = op.rms,
                         .dtype = op.dtype};
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
      backward_row({.dy = row_of(op.dy, row, n, op.dtype),
                    .dsum = row_of(op.dsum, row, n, op.dtype),
                    .sum = row_of(op.sum, row, n, op.dtype),
                    .weight = op.weight,
                    .dx = row_of(op.dx, row, n, op.dtype),
                    .dweight = dweight,
                    .dbias = dbias,
                    .columns = n,
                    .mean = op.rms ? 0.0F : op.mean[row],
                    .rstd = op.rstd[row],
                    .offset = op.offset,
                    .rms = op.rms,
                    .dtype = op.dtype});
    }
  }
}

// A stretch of columns at a time is summed on the stack, for `out` is added to once.
void column_sum_cpu(const ColumnSum& op, int64_t column_begin, int64_t column_end) {
  float sums[kStretch], block[kStretch];
  for (int64_t begin = column_begin; begin < column_end; begin += kStretch) {
    const int64_t n = std::min(kStretch, column_end - begin);
    if (op.partial_dtype == Dtype::f32) {
      sum_rows(op, 0, op.rows, begin, n, sums);
    } else {
      std::fill_n(sums, n, 0.0F);
      for (int64_t row = 0; row < op.rows; row += kNormRows) {
        sum_rows(op, row, std::min(op.rows, row + kNormRows), begin, n, block);
        add_row(sums, block, n, Dtype::f32);
      }
    }
    float* out = static_cast<float*>(op.out) + begin;
    op.add ? add_row(out, sums, n, Dtype::f32) : static_cast<void>(std::copy_n(sums, n, out));
  }
}

}  // namespace drivetrain::kernels
