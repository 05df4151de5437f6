// What the casts to 8 bits share: conversions and stores of a thread's numbers, and a maximum that NaN wins.
#pragma once

#include <cuda_fp8.h>

#include "kernels/common/device.cuh"

namespace drivetrain::kernels {

__device__ __forceinline__ float larger(float most, float x) { return x > most || x != x ? x : most; }

template <__nv_fp8_interpretation_t kType, int W>
__device__ __forceinline__ void narrow_to_bytes(const float (&x)[W], float scale, uint8_t (&to)[W]) {
  if constexpr (W == 1) {
    to[0] = __nv_cvt_float_to_fp8(x[0] * scale, __NV_SATFINITE, kType);
  } else {
#pragma unroll
    for (int i = 0; i < W; i += 2) {
      const __nv_fp8x2_storage_t pair =
          __nv_cvt_float2_to_fp8x2(make_float2(x[i] * scale, x[i + 1] * scale), __NV_SATFINITE, kType);
      to[i] = static_cast<uint8_t>(pair & 0xff), to[i + 1] = static_cast<uint8_t>(pair >> 8);
    }
  }
}

template <int W>
__device__ __forceinline__ void store_bytes(uint8_t* to, const uint8_t (&bytes)[W]) {
  if constexpr (W == 1) {
    *to = bytes[0];
  } else {
    Access<W> raw;
    memcpy(&raw, bytes, W);
    store_raw(reinterpret_cast<Access<W>*>(to), raw);
  }
}

}  // namespace drivetrain::kernels
