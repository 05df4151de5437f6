#include "tree_sum.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace drivetrain::nccl {
namespace {

constexpr int kThreads = 256;
// Levels that partial sums are kept for: 4 are enough for 15 ranks and leave room for packs of 16 bytes.
constexpr int kFewLevels = 4, kAllLevels = 17;
static_assert(kMostTreeRanks < 1 << kAllLevels);
constexpr int kMostBlocks = 4096;

// T: element in memory, A: type of the sum. 16-bit floats are added in float32 and rounded once.
template <class T, class A>
__device__ A widen(T x) {
  return static_cast<A>(x);
}
template <>
__device__ float widen<__nv_bfloat16, float>(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <>
__device__ float widen<__half, float>(__half x) {
  return __half2float(x);
}
template <class T, class A>
__device__ T narrow(A x) {
  return static_cast<T>(x);
}
template <>
__device__ __nv_bfloat16 narrow<__nv_bfloat16, float>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __half narrow<__half, float>(float x) {
  return __float2half_rn(x);
}

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

// Leaves enter from the left; like a binary counter, two subtrees of equal size become one at once. What is left at the
// end hangs together from the right. Every index is known when compiling, so the partial sums stay in registers.
template <class T, class A, int N, int kLevels>
__global__ void __launch_bounds__(kThreads)
    add_tree(const T* own, const T* others, int64_t stride, int ranks, int me, T* out, int64_t packs) {
  using P = Pack<T, N>;
  for (int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < packs; at += int64_t{gridDim.x} * blockDim.x) {
    A partial[kLevels][N];
    for (int rank = 0; rank < ranks; ++rank) {
      const T* slice = rank == me ? own : others + (rank - (rank > me ? 1 : 0)) * stride;
      const P leaf = reinterpret_cast<const P*>(slice)[at];
      A sum[N];
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = widen<T, A>(leaf.value[i]);
      bool placed = false;
#pragma unroll
      for (int level = 0; level < kLevels; ++level) {
        if (placed) continue;
        const bool full = (rank >> level) & 1;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (full)
            sum[i] = static_cast<A>(partial[level][i] + sum[i]);
          else
            partial[level][i] = sum[i];
        }
        placed = !full;
      }
    }
    A total[N];
    bool begun = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (((ranks >> level) & 1) == 0) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) total[i] = begun ? static_cast<A>(partial[level][i] + total[i]) : partial[level][i];
      begun = true;
    }
    P result;
#pragma unroll
    for (int i = 0; i < N; ++i) result.value[i] = narrow<T, A>(total[i]);
    reinterpret_cast<P*>(out)[at] = result;
  }
}

template <class T, class A, int N, int kLevels>
int launch(const T* own, const T* others, const TreeSum& s, T* out, int64_t packs, cudaStream_t stream) {
  if (packs == 0) return cudaSuccess;
  const int64_t wanted = (packs + kThreads - 1) / kThreads;
  const int blocks = static_cast<int>(wanted < kMostBlocks ? wanted : kMostBlocks);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  // Its own error, not one that somebody else has left.
  return cudaLaunchKernelEx(&config, add_tree<T, A, N, kLevels>, own, others, s.stride, s.ranks, s.me, out, packs);
}

// Packs where everything lies on their boundaries, the rest element by element.
template <class T, class A, int N, int kLevels>
int sum_packs(const TreeSum& s, cudaStream_t stream) {
  const T* own = static_cast<const T*>(s.own);
  const T* others = static_cast<const T*>(s.others);
  T* out = static_cast<T*>(s.out);
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(Pack<T, N>) == 0; };
  const bool packed = aligned(own) && aligned(others) && aligned(out) && s.stride % N == 0;
  const int64_t packs = packed ? s.count / N : 0, done = packs * N;
  if (const int status = launch<T, A, N, kLevels>(own, others, s, out, packs, stream); status != cudaSuccess)
    return status;
  return launch<T, A, 1, kLevels>(own + done, others + done, s, out + done, s.count - done, stream);
}

template <class T, class A>
int sum_of(const TreeSum& s, cudaStream_t stream) {
  constexpr int bytes = sizeof(T);
  if (s.ranks < 1 << kFewLevels) return sum_packs < T, A, bytes == 1 ? 8 : 16 / bytes, kFewLevels > (s, stream);
  return sum_packs < T, A, bytes >= 4 ? 1 : 4 / bytes, kAllLevels > (s, stream);
}

}  // namespace

int tree_sum(const TreeSum& s, void* raw) {
  if (s.count <= 0) return cudaSuccess;
  if (s.ranks < 1 || s.ranks > kMostTreeRanks) return cudaErrorInvalidValue;
  const cudaStream_t stream = static_cast<cudaStream_t>(raw);
  switch (s.type) {
    case SumType::f32:
      return sum_of<float, float>(s, stream);
    case SumType::f64:
      return sum_of<double, double>(s, stream);
    case SumType::bf16:
      return sum_of<__nv_bfloat16, float>(s, stream);
    case SumType::f16:
      return sum_of<__half, float>(s, stream);
    case SumType::i8:
      return sum_of<uint8_t, uint8_t>(s, stream);
    case SumType::i16:
      return sum_of<uint16_t, uint16_t>(s, stream);
    case SumType::i32:
      return sum_of<uint32_t, uint32_t>(s, stream);
    case SumType::i64:
      return sum_of<uint64_t, uint64_t>(s, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace drivetrain::nccl
