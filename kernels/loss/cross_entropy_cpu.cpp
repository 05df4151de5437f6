// Cross entropy on the CPU, a row at a time: its maximum, its exponentials left in its place, their share. A row of
// 50304 stays in the second-level cache, so main memory is read once and written once: 8 bytes per logit.
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

double row_loss(const CrossEntropy& op, float* x, int64_t label) {
  const float top = maximum(x, op.columns), logit = x[label];
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
    float* x = static_cast<float*>(op.logits) + row * (op.stride > 0 ? op.stride : op.columns);
    const int64_t label = op.labels[row];
    if (label >= 0 && label < op.columns) {
      op.loss[row] = row_loss(op, x, label);
      continue;
    }
    op.loss[row] = label < 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
    if (op.gradient) std::fill_n(x, op.columns, 0.0F);
  }
}

}  // namespace drivetrain::kernels
