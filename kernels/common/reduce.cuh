// Sums and maxima over a warp, and over groups of warps of a block, in an order fixed by the sizes alone.
#pragma once

#include "kernels/common/device.cuh"

namespace drivetrain::kernels {

inline constexpr unsigned kAllLanes = 0xffffffffU;

// Every lane gets the result.
template <class Number>
__device__ __forceinline__ Number warp_sum(Number x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// Sums N numbers at once over each group of `warps` (a power of two) consecutive warps of a block of at most kWarps;
// every thread gets those of its group. All threads of the block call it together, also those that have nothing to add.
// Consecutive calls alternate between two buffers, so that one barrier per call is enough.
template <int N, int kWarps>
class GroupSum {
 public:
  struct Shared {
    Pack<float, N> parts[2][kWarps];
  };

  __device__ GroupSum(Shared& shared, int warps)
      : shared_(shared), warps_(warps), warp_(static_cast<int>(threadIdx.x) / 32), first_(warp_ - warp_ % warps) {}

  __device__ __forceinline__ void operator()(float (&x)[N]) {
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = warp_sum(x[k]);
    if (warps_ == 1) return;
    Pack<float, N>* parts = shared_.parts[turn_];
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int k = 0; k < N; ++k) parts[warp_].unit[k] = x[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = 0.0F;
    for (int i = 0; i < warps_; ++i) {
      const Pack<float, N> part = parts[first_ + i];
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] += part.unit[k];
    }
  }

 private:
  Shared& shared_;
  const int warps_, warp_, first_;
  int turn_ = 0;
};

}  // namespace drivetrain::kernels
