// What the CUDA kernels share: 16-byte loads and stores of the three element types, float32 in between; choice of the
// type; launch with the error returned.
//
// Sixteen bytes per thread and access are what the memory system moves best. A `Pack` may only be loaded where its
// address is a multiple of its size: kernels take a width W, and W = 1 is the way for rows that do not allow more.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

// Elements in sixteen bytes.
template <class T>
inline constexpr int kWidth = 16 / static_cast<int>(sizeof(T));

// Two 16-bit elements stay one register until they are used.
template <class T, int W>
struct alignas(W * sizeof(T)) Pack {
  static constexpr bool kPairs = sizeof(T) == 2 && W % 2 == 0;
  using Unit = std::conditional_t<kPairs, unsigned, T>;
  Unit unit[kPairs ? W / 2 : W];
};

// The type of one access of so many bytes.
template <int kBytes>
using Access =
    std::conditional_t<kBytes == 16, uint4,
                       std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, unsigned, uint16_t>>>;

// A wide store written as an assignment may be taken apart by the compiler (nvcc 13.0 does so in some kernels).
__device__ __forceinline__ void store_raw(uint4* to, uint4 x) {
#ifdef __CUDACC__
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
#else
  *to = x;
#endif
}
__device__ __forceinline__ void store_raw(uint2* to, uint2 x) {
#ifdef __CUDACC__
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y) : "memory");
#else
  *to = x;
#endif
}
__device__ __forceinline__ void store_raw(unsigned* to, unsigned x) { *to = x; }
__device__ __forceinline__ void store_raw(uint16_t* to, uint16_t x) { *to = x; }

template <int W, class T>
__device__ __forceinline__ Pack<T, W> load(const T* from) {
  using Raw = Access<sizeof(Pack<T, W>)>;
  static_assert(sizeof(Raw) == sizeof(Pack<T, W>), "a pack is loaded by one access");
  const Raw raw = *reinterpret_cast<const Raw*>(from);
  Pack<T, W> pack;
  memcpy(&pack, &raw, sizeof pack);
  return pack;
}

template <class T, int W>
__device__ __forceinline__ void store(T* to, const Pack<T, W>& pack) {
  using Raw = Access<sizeof(Pack<T, W>)>;
  Raw raw;
  memcpy(&raw, &pack, sizeof pack);
  store_raw(reinterpret_cast<Raw*>(to), raw);
}

__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widened(__half x) { return __half2float(x); }

__device__ __forceinline__ void widen_pair(unsigned pair, __nv_bfloat16, float* to) {
  to[0] = __uint_as_float(pair << 16), to[1] = __uint_as_float(pair & 0xffff0000U);
}
__device__ __forceinline__ void widen_pair(unsigned pair, __half, float* to) {
  __half2 halves;
  memcpy(static_cast<void*>(&halves), &pair, sizeof pair);
  const float2 both = __half22float2(halves);
  to[0] = both.x, to[1] = both.y;
}

__device__ __forceinline__ unsigned narrow_pair(float a, float b, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  unsigned bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
__device__ __forceinline__ unsigned narrow_pair(float a, float b, __half) {
  const __half2 pair = __floats2half2_rn(a, b);
  unsigned bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

__device__ __forceinline__ void narrow(float x, float& to) { to = x; }
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }
__device__ __forceinline__ void narrow(float x, __half& to) { to = __float2half_rn(x); }

template <class T, int W>
__device__ __forceinline__ void widen(const Pack<T, W>& pack, float (&to)[W]) {
  if constexpr (Pack<T, W>::kPairs) {
#pragma unroll
    for (int i = 0; i < W; i += 2) widen_pair(pack.unit[i / 2], T{}, to + i);
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) to[i] = widened(pack.unit[i]);
  }
}

template <class T, int W>
__device__ __forceinline__ Pack<T, W> narrowed(const float (&x)[W]) {
  Pack<T, W> pack;
  if constexpr (Pack<T, W>::kPairs) {
#pragma unroll
    for (int i = 0; i < W; i += 2) pack.unit[i / 2] = narrow_pair(x[i], x[i + 1], T{});
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) narrow(x[i], pack.unit[i]);
  }
  return pack;
}

// Makes the compiler widen the pack again after this point, not keep the floats in twice the registers.
template <class T, int W>
__device__ __forceinline__ void stay_packed(Pack<T, W>& pack) {
  if constexpr (Pack<T, W>::kPairs) {
#pragma unroll
    for (int i = 0; i < W / 2; ++i) asm("" : "+r"(pack.unit[i]));
  }
}

// Widened elements at `from`, which may be null: zeros then.
template <int W, class T>
__device__ __forceinline__ void load_or_zero(const T* from, int64_t offset, float (&to)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) to[i] = 0.0F;
  if (from) widen(load<W>(from + offset), to);
}

// Host side.

// True if all (null ones apart) are multiples of `bytes`.
inline bool aligned(std::initializer_list<const void*> pointers, size_t bytes = 16) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [=](const void* p) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; });
}

template <class T>
struct Type {
  using type = T;
};

// body(Type<T>{}) for the element type that `dtype` names.
template <class Body>
int with_type(Dtype dtype, Body body) {
  switch (dtype) {
    case Dtype::f32:
      return body(Type<float>{});
    case Dtype::bf16:
      return body(Type<__nv_bfloat16>{});
    case Dtype::f16:
      return body(Type<__half>{});
  }
  return cudaErrorInvalidValue;
}

// body(std::integral_constant<int, W>{}) with the widest W the pointers and the row length allow: sixteen bytes or one
// element.
template <class T, class Body>
int with_width(int64_t row, std::initializer_list<const void*> pointers, Body body) {
  if (row % kWidth<T> == 0 && aligned(pointers)) return body(std::integral_constant<int, kWidth<T>>{});
  return body(std::integral_constant<int, 1>{});
}

// How to share `items` columns between blocks of at most `most` threads, whole warps, evenly.
struct Split {
  int64_t blocks;
  int threads;
};
inline Split split(int64_t items, int most) {
  const int64_t blocks = std::max<int64_t>(blocks_of(items, most), 1);
  return {blocks, static_cast<int>(std::max<int64_t>(blocks_of(blocks_of(items, blocks), 32), 1) * 32)};
}

// Blocks for a kernel that walks over its work: `per_sm` for every multiprocessor, or fewer if there is less work. -1
// if the device cannot be asked, which `launch` refuses.
inline int64_t persistent_blocks(int64_t work, int per_sm) {
  int device = 0, processors = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return -1;
  if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return -1;
  return std::min(work, static_cast<int64_t>(processors) * per_sm);
}

// Enqueues `kernel`; nothing to do (no blocks) is no launch. Returns the launch's own error, not one left by somebody
// else.
template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), int64_t blocks, int threads, void* stream, Arguments... arguments) {
  if (blocks == 0) return cudaSuccess;
  if (blocks < 0 || blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace drivetrain::kernels
