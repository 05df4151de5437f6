// Runs CUDA kernels on the CPU, one block after the other, so that their indexing, bounds, alignment and barriers are
// tested (and seen by sanitizers) where there is no GPU. Included before a .cu file that is compiled as C++; with it
// come stand-ins for the few functions of the CUDA runtime that kernels and their tests call.
//
// The threads of a block are fibres on one thread: each runs until it waits at a barrier or a shuffle. Every other
// launch runs them in reverse order: a kernel whose results differ then lacks a barrier. A barrier that not all threads
// reach stops the program with a message. What is not shown: speed, memory ordering within a warp, float rounding of
// fast intrinsics.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <type_traits>

// Where the running fibre is.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace emulated_cuda {

// Runs body once for every thread of every block.
void run(dim3 grid, dim3 block, const std::function<void()>& body);

// Waits for the threads of the block that still run.
void barrier();

// Waits for all lanes of the warp that still run, then gives what lane `from` brought. `from` < 0: a bit per lane with
// `value` not zero.
uint64_t exchange(uint64_t value, int from);

template <class Value>
Value shuffle(Value value, int from) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8);
  using Bits = std::conditional_t<sizeof(Value) == 4, uint32_t, uint64_t>;
  return std::bit_cast<Value>(static_cast<Bits>(exchange(std::bit_cast<Bits>(value), from)));
}

inline int lane() { return static_cast<int>(threadIdx.x % 32); }

// A launch, or its recording while a stream is captured.
int enqueue(const cudaLaunchConfig_t& config, std::function<void()> body);

}  // namespace emulated_cuda

#define cudaLaunchKernelEx emulated_launch
#undef __shared__
#define __shared__ static  // blocks run one after the other
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline

inline void __syncthreads() { emulated_cuda::barrier(); }
template <class Value>
Value __shfl_sync(unsigned, Value value, int from) {
  return emulated_cuda::shuffle(value, from);
}
template <class Value>
Value __shfl_xor_sync(unsigned, Value value, int mask) {
  return emulated_cuda::shuffle(value, emulated_cuda::lane() ^ mask);
}
inline unsigned __ballot_sync(unsigned, bool value) {
  return static_cast<unsigned>(emulated_cuda::exchange(value, -1));
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
using std::fma, std::min, std::max;

template <class... Parameters, class... Arguments>
cudaError_t emulated_launch(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments... arguments) {
  return static_cast<cudaError_t>(emulated_cuda::enqueue(*config, [=] { kernel(arguments...); }));
}
