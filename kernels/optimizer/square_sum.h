// Sums of squares over fixed blocks of kSquareBlock elements, in float64 and in a fixed order inside a block:
// the parts of a global norm that no way of cutting the tensor moves. And the sums of those parts.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

inline constexpr int64_t kSquareBlock = 1024;

struct SquareSum {
  const void* x = nullptr;  // [n]
  double* sums = nullptr;   // [blocks_of(n, kSquareBlock)]
  int64_t n = 0;
  Dtype dtype = Dtype::f32;
};
DRIVETRAIN_KERNEL void square_sum_cpu(const SquareSum&, int64_t block_begin, int64_t block_end);
DRIVETRAIN_KERNEL int square_sum_cuda(const SquareSum&, void* stream);

// Many arrays of one type in one launch, each with the bits of a SquareSum of its own. `segments` lies on the device.
struct SquareSegment {
  const void* x = nullptr;  // [n]
  double* sums = nullptr;   // [blocks_of(n, kSquareBlock)]
  int64_t n = 0;
  int64_t first = 0;  // blocks of kSquareBlock elements in all segments before this one
};
struct SquareMany {
  const SquareSegment* segments = nullptr;  // [count]
  int64_t count = 0, blocks = 0;
  Dtype dtype = Dtype::f32;
};
DRIVETRAIN_KERNEL int square_many_cuda(const SquareMany&, void* stream);

// Sum of x[0 .. n) by one fixed tree: from left to right on the CPU, into out[0] on CUDA.
DRIVETRAIN_KERNEL double sum_in_order_cpu(const double* x, int64_t n);
DRIVETRAIN_KERNEL int sum_in_order_cuda(const double* x, int64_t n, double* out, void* stream);

// sums[i] := sum of x[first[i] .. first[i] + count[i]), each by one tree fixed by its count alone:
// from left to right on the CPU.
struct SegmentSum {
  const double* x = nullptr;
  const int64_t* first = nullptr;  // [segments]
  const int64_t* count = nullptr;  // [segments], may be 0
  double* sums = nullptr;          // [segments]
  int64_t segments = 0;
};
DRIVETRAIN_KERNEL void segment_sum_cpu(const SegmentSum&, int64_t segment_begin, int64_t segment_end);
DRIVETRAIN_KERNEL int segment_sum_cuda(const SegmentSum&, void* stream);

}  // namespace drivetrain::kernels
