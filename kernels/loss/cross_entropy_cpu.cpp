// Cross entropy on the CPU, a row at a time: its maximum, its exponentials left in its place, their share. A row of
// 50304 stays in the second-level cache, so main memory is read once and written once: 8 bytes per logit, 4 of 16 bits.
#include "kernels/loss/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/loss/row.h"

namespace drivetrain::kernels {
namespace {

// Sum of e^(x - top); `keep` leaves the terms in the place of x.
DRIVETRAIN_VECTOR_CLONES float exponentials(float* x, int64_t n, float top, bool keep) {
  if (keep) return sum_lanes(n, [=](int64_t i) { return x[i] = exp_below(x[i] - top); });
  return sum_lanes(n, [=](int64_t i) { return exp_below(x[i] - top); });
}

DRIVETRAIN_VECTOR_CLONES void multiply(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// The exponentials of 16-bit logits are made twice, because their places are too narrow to keep them.
double narrow_row_loss(const CrossEntropy& op, void* x, int64_t label) {
  const float top = maximum(x, op.columns, op.dtype), logit = element(x, label, op.dtype);
  double sum = 0;
  for (int64_t i = 0; i < op.columns; i += kBlock)
    sum += static_cast<double>(sum_of_exponentials(x, i, std::min(op.columns - i, kBlock), top, op.dtype));
  if (op.gradient) {
    const double share = std::exp(static_cast<double>(logit) - static_cast<double>(top)) / sum;
    share_of_exponentials(x, op.columns, top, static_cast<float>(op.scale / sum), op.dtype);
    set_element(x, label, static_cast<float>(op.scale * (share - 1)), op.dtype);
  }
  return std::log(sum) + (static_cast<double>(top) - static_cast<double>(logit));
}

// Of numbers that become logits on the way; those are made twice as well.
double mapped_row_loss(const CrossEntropy& op, void* x, int64_t label) {
  const LogitMap map{op.logit_scale, op.softcap};
  const float top = map(maximum(x, op.columns, op.dtype)), logit = map(element(x, label, op.dtype));
  double sum = 0;
  for (int64_t i = 0; i < op.columns; i += kBlock)
    sum += static_cast<double>(mapped_sum_of_exponentials(x, i, std::min(op.columns - i, kBlock), top, map, op.dtype));
  if (op.gradient) {
    const double share = std::exp(static_cast<double>(logit) - static_cast<double>(top)) / sum;
    mapped_share_of_exponentials(x, op.columns, top, static_cast<float>(op.scale / sum), map, op.dtype);
    const double own = op.scale * (share - 1) * static_cast<double>(map.slope_at(logit));
    set_element(x, label, static_cast<float>(own), op.dtype);
  }
  return std::log(sum) + (static_cast<double>(top) - static_cast<double>(logit));
}

double row_loss(const CrossEntropy& op, float* x, int64_t label) {
  const float top = maximum(x, op.columns, Dtype::f32), logit = x[label];
  double sum = 0;
  for (int64_t i = 0; i < op.columns; i += kBlock) {
    const int64_t n = op.columns - i < kBlock ? op.columns - i : kBlock;
    sum += static_cast<double>(exponentials(x + i, n, top, op.gradient));
  }
  if (op.gradient) {
    const double share = static_cast<double>(x[label]) / sum;
    multiply(x, op.columns, static_cast<float>(op.scale / sum));
    x[label] = static_cast<float>(op.scale * (share - 1));
  }
  return std::log(sum) + (static_cast<double>(top) - static_cast<double>(logit));
}

}  // namespace

void cross_entropy_cpu(const CrossEntropy& op, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    void* const x = row_of(op.logits, row, op.stride > 0 ? op.stride : op.columns, op.dtype);
    const int64_t label = op.labels[row];
    if (label >= 0 && label < op.columns) {
      op.loss[row] = !LogitMap{op.logit_scale, op.softcap}.is_identity() ? mapped_row_loss(op, x, label)
                     : op.dtype == Dtype::f32                            ? row_loss(op, static_cast<float*>(x), label)
                                                                         : narrow_row_loss(op, x, label);
      continue;
    }
    op.loss[row] = label < 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
    if (op.gradient) clear(x, 0, op.columns, op.dtype);
  }
}

}  // namespace drivetrain::kernels
