// GELU, its tanh approximation, SiLU and ReLU with their slopes, for the kernels that compute them. float32 takes the
// exact exponential and division, 16-bit types the fast ones (kFast): their error of 2^-21 is far below the type's.
#pragma once

#include "kernels/common/device.cuh"

namespace drivetrain::kernels {

template <bool kFast>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (kFast)
    return __fdividef(1.0F, 1.0F + __expf(-x));
  else
    return 1.0F / (1.0F + expf(-x));
}

struct GeluTanh {
  static constexpr float kLine = 1.5957691216F, kCube = kLine * 0.044715F;  // 2 sqrt(2 / pi)

  // 0.5 (1 + tanh u) = sigmoid(2 u)
  template <bool kFast>
  static __device__ __forceinline__ float value(float x) {
    return x * sigmoid<kFast>(x * (kLine + kCube * x * x));
  }

  template <bool kFast>
  static __device__ __forceinline__ float slope(float x) {
    const float square = x * x, gate = sigmoid<kFast>(x * (kLine + kCube * square));
    return gate + x * gate * (1.0F - gate) * (kLine + 3.0F * kCube * square);
  }
};

struct Gelu {
  static __device__ __forceinline__ float cumulative(float x) { return 0.5F + 0.5F * erff(x * 0.70710678F); }

  template <bool kFast>
  static __device__ __forceinline__ float value(float x) {
    return x * cumulative(x);
  }

  template <bool kFast>
  static __device__ __forceinline__ float slope(float x) {
    const float power = -0.5F * x * x;
    return cumulative(x) + x * 0.39894228F * (kFast ? __expf(power) : expf(power));
  }
};

struct Silu {
  template <bool kFast>
  static __device__ __forceinline__ float value(float x) {
    return x * sigmoid<kFast>(x);
  }

  template <bool kFast>
  static __device__ __forceinline__ float slope(float x) {
    const float gate = sigmoid<kFast>(x);
    return gate * (1.0F + x * (1.0F - gate));
  }
};

// NaN stays NaN.
struct Relu {
  template <bool>
  static __device__ __forceinline__ float value(float x) {
    return x < 0.0F ? 0.0F : x;
  }

  template <bool>
  static __device__ __forceinline__ float slope(float x) {
    return x > 0.0F ? 1.0F : 0.0F;
  }
};

}  // namespace drivetrain::kernels
