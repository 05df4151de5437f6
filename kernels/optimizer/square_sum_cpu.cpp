// Sums of squares on the CPU, in float64: 4 bytes read per element, nothing written but one number per block.
#include "kernels/optimizer/square_sum.h"

#include "kernels/common/narrow.h"

namespace drivetrain::kernels {
namespace {

// Element i of a block goes to lane i mod 8, so the order of additions is the same in every vector width.
constexpr int64_t kLanesOfSquares = 8;

DRIVETRAIN_INLINE double square(float x) {
  const double wide = static_cast<double>(x);
  return wide * wide;
}

DRIVETRAIN_INLINE double folded(const double* lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

DRIVETRAIN_INLINE double block(const float* x, int64_t n) {
  double lanes[kLanesOfSquares] = {};
  int64_t i = 0;
  for (; i + kLanesOfSquares <= n; i += kLanesOfSquares) {
    for (int64_t j = 0; j < kLanesOfSquares; ++j) lanes[j] += square(x[i + j]);
  }
  for (int64_t j = 0; i + j < n; ++j) lanes[j] += square(x[i + j]);
  return folded(lanes);
}

// Widened beside, since loops over numbers of such unlike width do not become vector code.
template <class Narrow>
DRIVETRAIN_INLINE double block(const Narrow* x, int64_t n) {
  float wide[kSquareBlock];
  for (int64_t i = 0; i < n; ++i) wide[i] = widened(x[i]);
  return block(static_cast<const float*>(wide), n);
}

template <class T>
DRIVETRAIN_INLINE void blocks(const SquareSum& op, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(op.x);
  for (int64_t b = begin; b < end; ++b) {
    const int64_t first = b * kSquareBlock, rest = op.n - first;
    op.sums[b] = block(x + first, rest < kSquareBlock ? rest : kSquareBlock);
  }
}

DRIVETRAIN_VECTOR_CLONES void range(const SquareSum& op, int64_t begin, int64_t end) {
  if (op.dtype == Dtype::bf16)
    blocks<Bf16>(op, begin, end);
  else if (op.dtype == Dtype::f16)
    blocks<F16>(op, begin, end);
  else
    blocks<float>(op, begin, end);
}

}  // namespace

void square_sum_cpu(const SquareSum& op, int64_t block_begin, int64_t block_end) { range(op, block_begin, block_end); }

double sum_in_order_cpu(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

void segment_sum_cpu(const SegmentSum& op, int64_t segment_begin, int64_t segment_end) {
  for (int64_t i = segment_begin; i < segment_end; ++i) op.sums[i] = sum_in_order_cpu(op.x + op.first[i], op.count[i]);
}

}  // namespace drivetrain::kernels
