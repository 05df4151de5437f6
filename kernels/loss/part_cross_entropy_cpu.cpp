// Cross entropy over parts of a vocabulary on the CPU, a row at a time: 4 bytes per logit in the first pass, 8 in the
// second, which makes the exponentials again: that takes less time than bringing them to memory and back.
#include "kernels/loss/part_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/loss/row.h"

namespace drivetrain::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// All parts of a row together, in rank order.
struct Whole {
  double top = -kInfinity, sum = 0, target = 0;

  Whole(const PartCrossEntropy& op, int64_t row) {
    const auto part = [&](int64_t rank) { return op.parts + (rank * op.rows + row) * 3; };
    for (int64_t r = 0; r < op.ranks; ++r) top = std::max(top, part(r)[0]);
    for (int64_t r = 0; r < op.ranks; ++r) {
      target += part(r)[2];
      if (part(r)[1] != 0) sum += part(r)[1] * std::exp(part(r)[0] - top);
    }
  }
};

void begin_row(const PartCrossEntropy& op, const void* x, int64_t label, double* part) {
  const int64_t own = label - op.first;
  part[0] = -kInfinity, part[1] = 0, part[2] = 0;
  if (label < 0 || op.valid < 1) return;
  const LogitMap map{op.logit_scale, op.softcap};
  const bool same = map.is_identity();
  const float top = same ? maximum(x, op.valid, op.dtype) : map(maximum(x, op.valid, op.dtype));
  part[0] = top;
  if (own >= 0 && own < op.valid) part[2] = same ? element(x, own, op.dtype) : map(element(x, own, op.dtype));
  if (static_cast<double>(top) == -kInfinity) return;
  for (int64_t i = 0; i < op.valid; i += kBlock) {
    const int64_t n = std::min(op.valid - i, kBlock);
    part[1] += static_cast<double>(same ? sum_of_exponentials(x, i, n, top, op.dtype)
                                        : mapped_sum_of_exponentials(x, i, n, top, map, op.dtype));
  }
}

}  // namespace

void part_cross_entropy_begin_cpu(const PartCrossEntropy& op, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row)
    begin_row(op, row_of(op.logits, row, op.columns, op.dtype), op.labels[row], op.part + row * 3);
}

void part_cross_entropy_end_cpu(const PartCrossEntropy& op, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    void* const x = row_of(op.logits, row, op.columns, op.dtype);
    const int64_t label = op.labels[row], own = label - op.first;
    if (label < 0 || label >= op.vocabulary) {
      op.loss[row] = label < 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
      if (op.gradient) clear(x, 0, op.columns, op.dtype);
      continue;
    }
    const Whole whole(op, row);
    op.loss[row] = std::log(whole.sum) + (whole.top - whole.target);
    if (!op.gradient) continue;
    const LogitMap map{op.logit_scale, op.softcap};
    const float top = static_cast<float>(whole.top), factor = static_cast<float>(op.scale / whole.sum);
    if (map.is_identity())
      share_of_exponentials(x, op.valid, top, factor, op.dtype);
    else
      mapped_share_of_exponentials(x, op.valid, top, factor, map, op.dtype);
    clear(x, op.valid, op.columns, op.dtype);
    if (own < 0 || own >= op.valid) continue;
    const double slope = static_cast<double>(map.slope_at(static_cast<float>(whole.target)));
    const double share = op.scale * (std::exp(whole.target - whole.top) / whole.sum - 1) * slope;
    set_element(x, own, static_cast<float>(share), op.dtype);
  }
}

}  // namespace drivetrain::kernels
