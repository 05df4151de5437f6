// Layer norm and RMS norm on the CPU: a row at a time, its mean and its mean square deviation in passes over the cached
// row.
#include "kernels/norm/norm.h"

#include <cmath>

#include "kernels/common/lanes.h"

namespace drivetrain::kernels {
namespace {

DRIVETRAIN_VECTOR_CLONES void forward_row(const NormForward& op, int64_t row) {
  const int64_t n = op.columns;
  const float* x = static_cast<const float*>(op.x) + row * n;
  const float* weight = static_cast<const float*>(op.weight);
  const float* bias = static_cast<const float*>(op.bias);
  const float* sum = x;
  if (op.sum) {
    float* out = static_cast<float*>(op.sum) + row * n;
    const float* delta = op.delta ? static_cast<const float*>(op.delta) + row * n : nullptr;
    for (int64_t i = 0; i < n; ++i) out[i] = delta ? x[i] + delta[i] : x[i];
    sum = out;
  }
  const float mean = op.rms ? 0.0F : sum_lanes(n, [=](int64_t i) { return sum[i]; }) / static_cast<float>(n);
  const float square = sum_lanes(n, [=](int64_t i) { return (sum[i] - mean) * (sum[i] - mean); });
  const float rstd = 1.0F / std::sqrt(square / static_cast<float>(n) + static_cast<float>(op.epsilon));
  float* y = static_cast<float*>(op.y) + row * n;
  for (int64_t i = 0; i < n; ++i) y[i] = (sum[i] - mean) * rstd * weight[i] + (bias ? bias[i] : 0.0F);
  if (op.mean) op.mean[row] = mean;
  op.rstd[row] = rstd;
}

DRIVETRAIN_VECTOR_CLONES void backward_row(const NormBackward& op, int64_t row, float* dweight, float* dbias) {
  const int64_t n = op.columns;
  const float* dy = static_cast<const float*>(op.dy) + row * n;
  const float* sum = static_cast<const float*>(op.sum) + row * n;
  const float* dsum = op.dsum ? static_cast<const float*>(op.dsum) + row * n : nullptr;
  const float* weight = static_cast<const float*>(op.weight);
  const float mean = op.rms ? 0.0F : op.mean[row];
  const float rstd = op.rstd[row];
  const float scale = 1.0F / static_cast<float>(n);
  const float mean_g = op.rms ? 0.0F : scale * sum_lanes(n, [=](int64_t i) { return dy[i] * weight[i]; });
  const float mean_gx = scale * sum_lanes(n, [=](int64_t i) { return dy[i] * weight[i] * ((sum[i] - mean) * rstd); });
  float* dx = static_cast<float*>(op.dx) + row * n;
  for (int64_t i = 0; i < n; ++i) {
    const float normal = (sum[i] - mean) * rstd;
    const float gradient = dy[i];
    dweight[i] += gradient * normal;
    dbias[i] += gradient;
    dx[i] = (gradient * weight[i] - mean_g - normal * mean_gx) * rstd + (dsum ? dsum[i] : 0.0F);
  }
}

DRIVETRAIN_VECTOR_CLONES void add_row(float* out, const float* row, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) out[i] += row[i];
}

}  // namespace

void norm_forward_cpu(const NormForward& op, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) forward_row(op, row);
}

void norm_backward_cpu(const NormBackward& op, int64_t block_begin, int64_t block_end) {
  const int64_t blocks = blocks_of(op.rows, kNormRows);
  for (int64_t block = block_begin; block < block_end; ++block) {
    float* dweight = op.partial + block * op.columns;
    float* dbias = op.partial + (blocks + block) * op.columns;
    for (int64_t i = 0; i < op.columns; ++i) dweight[i] = dbias[i] = 0.0F;
    const int64_t first = block * kNormRows, last = first + kNormRows < op.rows ? first + kNormRows : op.rows;
    for (int64_t row = first; row < last; ++row) backward_row(op, row, dweight, dbias);
  }
}

void column_sum_cpu(const ColumnSum& op, int64_t column_begin, int64_t column_end) {
  float* out = static_cast<float*>(op.out);
  if (!op.add) {
    for (int64_t i = column_begin; i < column_end; ++i) out[i] = 0.0F;
  }
  for (int64_t row = 0; row < op.rows; ++row) add_row(out, op.partial + row * op.columns, column_begin, column_end);
}

}  // namespace drivetrain::kernels
