// How a thread of a cast gets the W numbers at one place: it loads them, or computes them of what is there.
#pragma once

#include "kernels/activation/functions.cuh"
#include "kernels/eight_bits/cast_from.h"
#include "kernels/norm/normed.cuh"

namespace drivetrain::kernels {

struct Itself {
  template <class T, int W>
  static __device__ __forceinline__ Pack<T, W> at(const T* x, const CastFrom&, int64_t k, int64_t row, int64_t column) {
    return load<W>(x + row * k + column);
  }
};

template <class T, int W>
__device__ __forceinline__ void load_widened(const void* from, int64_t at, float (&to)[W]) {
  widen(load<W>(static_cast<const T*>(from) + at), to);
}
template <class T, int W>
__device__ __forceinline__ void load_with_bias(const T* x, int64_t row_start, const void* bias, int64_t column,
                                               float (&to)[W]) {
  float added[W];
  load_or_zero<W>(static_cast<const T*>(bias), column, added);
  load_widened<T>(x, row_start + column, to);
#pragma unroll
  for (int i = 0; i < W; ++i) to[i] += added[i];
}

template <class Function, bool kGated>
struct OfActivation {
  static constexpr bool kIsGradient = false;
  template <class T, int W>
  static __device__ __forceinline__ Pack<T, W> at(const T* x, const CastFrom& from, int64_t k, int64_t row,
                                                  int64_t column) {
    const int64_t start = row * (kGated ? 2 * k : k);
    float y[W];
    load_with_bias<T>(x, start, from.bias, column, y);
#pragma unroll
    for (int i = 0; i < W; ++i) y[i] = Function::template value<true>(y[i]);
    if constexpr (kGated) {
      float up[W];
      load_with_bias<T>(x, start, from.bias, k + column, up);
#pragma unroll
      for (int i = 0; i < W; ++i) y[i] *= up[i];
    }
    return narrowed<T>(y);
  }
};

template <class Function, bool kGated>
struct OfGradient {
  static constexpr bool kIsGradient = true;
  template <class T, int W>
  static __device__ __forceinline__ Pack<T, W> at(const T* x, const CastFrom& from, int64_t k, int64_t row,
                                                  int64_t column) {
    const int64_t F = kGated ? k / 2 : k, start = row * k;
    const bool of_up = kGated && column >= F;
    const int64_t f = of_up ? column - F : column;
    float gate[W], dx[W];
    load_with_bias<T>(x, start, from.bias, f, gate);
    load_widened<T>(from.dy, row * F + f, dx);
    if (of_up) {
#pragma unroll
      for (int i = 0; i < W; ++i) dx[i] *= Function::template value<true>(gate[i]);
      return narrowed<T>(dx);
    }
    if constexpr (kGated) {
      float up[W];
      load_with_bias<T>(x, start, from.bias, F + f, up);
#pragma unroll
      for (int i = 0; i < W; ++i) dx[i] *= up[i];
    }
#pragma unroll
    for (int i = 0; i < W; ++i) dx[i] *= Function::template slope<true>(gate[i]);
    return narrowed<T>(dx);
  }
};

struct OfNorm {
  static constexpr bool kIsGradient = false;
  template <class T, int W>
  static __device__ __forceinline__ Pack<T, W> at(const T* x, const CastFrom& from, int64_t k, int64_t row,
                                                  int64_t column) {
    float y[W], weight[W], bias[W];
    load_widened<T>(x, row * k + column, y);
    load_or_zero<W>(static_cast<const T*>(from.weight), column, weight);
    load_or_zero<W>(static_cast<const T*>(from.bias), column, bias);
    const float mean = from.mean ? from.mean[row] : 0.0F, rstd = from.rstd[row];
#pragma unroll
    for (int i = 0; i < W; ++i) y[i] = normed(y[i], mean, rstd, from.offset + weight[i], bias[i]);
    return narrowed<T>(y);
  }
};

// Halves of a gated gradient read the same numbers: tiles of both in turn, so that the second finds them in the cache.
// Of `across` tiles in a row, which one is the i-th.
__device__ __forceinline__ unsigned tile_in_turn(bool halves, unsigned i, unsigned across) {
  return halves ? i % 2 * (across / 2) + i / 2 : i;
}
inline bool in_halves(const CastFrom& from, int64_t k, int64_t tile) {
  return from.kind == CastFrom::Kind::activation_backward && is_gated(from.activation) && k % (2 * tile) == 0;
}

// Host side. body(OfNorm{}) and the like for what `from` says, which is not `itself`.
template <class Body>
int with_cast_from(const CastFrom& from, Body body) {
  const auto with_function = [&](auto make) {
    switch (from.activation) {
      case Activation::gelu_tanh:
        return body(make(GeluTanh{}, std::false_type{}));
      case Activation::gelu:
        return body(make(Gelu{}, std::false_type{}));
      case Activation::silu:
        return body(make(Silu{}, std::false_type{}));
      case Activation::relu:
        return body(make(Relu{}, std::false_type{}));
      case Activation::swiglu:
        return body(make(Silu{}, std::true_type{}));
      case Activation::geglu:
        return body(make(Gelu{}, std::true_type{}));
      case Activation::geglu_tanh:
        return body(make(GeluTanh{}, std::true_type{}));
      case Activation::reglu:
        return body(make(Relu{}, std::true_type{}));
    }
    return static_cast<int>(cudaErrorInvalidValue);
  };
  switch (from.kind) {
    case CastFrom::Kind::itself:
      break;
    case CastFrom::Kind::activation:
      return with_function(
          [](auto function, auto gated) { return OfActivation<decltype(function), decltype(gated)::value>{}; });
    case CastFrom::Kind::activation_backward:
      return with_function(
          [](auto function, auto gated) { return OfGradient<decltype(function), decltype(gated)::value>{}; });
    case CastFrom::Kind::norm:
      return body(OfNorm{});
  }
  return cudaErrorInvalidValue;
}

using Computed = __nv_bfloat16;

// The same for an operation `op` on numbers that are computed, with the width of its packs; `more`: other pointers that
// it reads or writes so wide.
template <class Op, class Body>
int with_computed(const Op& op, std::initializer_list<const void*> more, Body body) {
  if (!cast_from_fits(op.from, op.k, op.dtype) || !aligned({op.x, op.from.dy, op.from.weight, op.from.bias}) ||
      !aligned(more))
    return cudaErrorInvalidValue;
  return with_cast_from(op.from,
                        [&](auto from) { return body(from, std::integral_constant<int, kWidth<Computed>>{}); });
}

}  // namespace drivetrain::kernels
