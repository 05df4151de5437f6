// Sums of squares on CUDA: one warp per block of kSquareBlock elements. Which lane adds an element, and when, follows
// from its place in the block alone, not from alignment or from how many blocks there are.
//
// Bytes moved: the elements, once. float64 products and sums: half the rate of float32 on data centre GPUs, a 64th on
// others.
#include "kernels/optimizer/square_sum.h"

#include "kernels/common/reduce.cuh"
#include "kernels/common/segments.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 256;

// Elements [at, at + W), zero from `left` on.
template <class T, int W>
__device__ __forceinline__ void read_some(const T* x, int at, int64_t left, float (&to)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) to[i] = at + i < left ? widened(x[at + i]) : 0.0F;
}

// Lane l takes W elements from (p * 32 + l) * W on, for p = 0, 1, ...
template <class T, bool kWhole>
__device__ __forceinline__ double lane_sum(const T* x, int64_t left, int lane) {
  constexpr int W = kWidth<T>, kPacks = static_cast<int>(kSquareBlock) / (32 * W);
  Pack<T, W> in[kPacks];
  double sum = 0.0;
  if constexpr (kWhole) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) in[p] = load<W>(x + (p * 32 + lane) * W);
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float values[W];
    if constexpr (kWhole)
      widen(in[p], values);
    else
      read_some(x, (p * 32 + lane) * W, left, values);
#pragma unroll
    for (int i = 0; i < W; ++i) sum = fma(static_cast<double>(values[i]), static_cast<double>(values[i]), sum);
  }
  return sum;
}

// The warp's block of kSquareBlock elements of `op`, a SquareSum or a SquareSegment. One there is not is passed over.
template <class T, class Array>
__device__ __forceinline__ void sum_block(const Array& op, int64_t block, bool is_aligned) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first = block * kSquareBlock, left = op.n - first;
  if (left <= 0) return;  // the whole warp
  const T* x = static_cast<const T*>(op.x) + first;
  const bool whole = is_aligned && left >= kSquareBlock;
  const double sum = warp_sum(whole ? lane_sum<T, true>(x, left, lane) : lane_sum<T, false>(x, left, lane));
  if (lane == 0) op.sums[block] = sum;
}

__device__ __forceinline__ int64_t warp_of_grid() {
  return static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
}

template <class T>
__global__ void __launch_bounds__(kThreads) square_sums(SquareSum op, bool is_aligned) {
  sum_block<T>(op, warp_of_grid(), is_aligned);
}

template <class T>
__global__ void __launch_bounds__(kThreads) square_sums_of_many(SquareMany op) {
  const int64_t block = warp_of_grid();
  if (block >= op.blocks) return;  // the whole warp
  const SquareSegment s = segment_of(op.segments, op.count, block);
  sum_block<T>(s, block - s.first, reinterpret_cast<uintptr_t>(s.x) % 16 == 0);
}

// One block; thread t adds x[t], x[t + kSumThreads], ... in order, then warps and the block fold.
// The first warp's threads get the sum.
template <int kSumThreads>
__device__ __forceinline__ double block_sum(const double* x, int64_t n) {
  __shared__ double parts[kSumThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  double sum = 0.0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < n; i += kSumThreads) sum += x[i];
  sum = warp_sum(sum);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  return warp_sum(lane < kSumThreads / 32 ? parts[lane] : 0.0);
}

constexpr int kAllThreads = 1024, kSegmentThreads = 256;

__global__ void __launch_bounds__(kAllThreads) sum_all(const double* x, int64_t n, double* out) {
  const double sum = block_sum<kAllThreads>(x, n);
  if (threadIdx.x == 0) *out = sum;
}

// One block per segment.
__global__ void __launch_bounds__(kSegmentThreads) sum_segments(SegmentSum op) {
  const int64_t i = blockIdx.x;
  const double sum = block_sum<kSegmentThreads>(op.x + op.first[i], op.count[i]);
  if (threadIdx.x == 0) op.sums[i] = sum;
}

}  // namespace

int square_sum_cuda(const SquareSum& op, void* stream) {
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t blocks = blocks_of(blocks_of(op.n, kSquareBlock), kThreads / 32);
    return launch(square_sums<T>, blocks, kThreads, stream, op, aligned({op.x}));
  });
}

int square_many_cuda(const SquareMany& op, void* stream) {
  return with_type(op.dtype, [&](auto type) {
    return launch(square_sums_of_many<typename decltype(type)::type>, blocks_of(op.blocks, kThreads / 32), kThreads,
                  stream, op);
  });
}

int sum_in_order_cuda(const double* x, int64_t n, double* out, void* stream) {
  return launch(sum_all, 1, kAllThreads, stream, x, n, out);
}

int segment_sum_cuda(const SegmentSum& op, void* stream) {
  return launch(sum_segments, op.segments, kSegmentThreads, stream, op);
}

}  // namespace drivetrain::kernels
