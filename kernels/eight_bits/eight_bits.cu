// Casts to 8 bits on CUDA: a block reads a tile of 128 rows and 64 columns once, writes it as it lies, and transposed
// by way of shared memory. Bytes moved per element: two for the maximum, two and one or two for the cast, which finds
// the maximum as well where it is asked for. Numbers that are computed in the same pass are those of their own kernel.
#include "kernels/eight_bits/eight_bits.h"

#include <cfloat>
#include <cmath>

#include "kernels/common/device.cuh"
#include "kernels/eight_bits/cast_from.cuh"
#include "kernels/eight_bits/eight_bits.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 256;

// --- maximum

// Every thread gets that of the block. All threads call it.
__device__ __forceinline__ float block_maximum(float most) {
  __shared__ float all[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  all[t] = most;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) all[t] = larger(all[t], all[t + half]);
  }
  __syncthreads();
  return all[0];
}

template <class From, class T, int W>
__device__ __forceinline__ Pack<T, W> number_at(const AbsoluteMaximum& op, const T* x, int64_t i) {
  if constexpr (std::is_same_v<From, Itself>)
    return load<W>(x + i);
  else
    return From::template at<T, W>(x, op.from, op.k, i / op.k, i % op.k);
}

template <class From, class T, int W>
__global__ void __launch_bounds__(kThreads) maxima_of_parts(AbsoluteMaximum op) {
  if (op.unless && *op.unless > 0.0F) return;
  constexpr int kFlight = 4;
  const T* const x = static_cast<const T*>(op.x);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * W, packs = op.n / W * W;
  float most = 0.0F;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * W; first < packs;
       first += kFlight * step) {
    Pack<T, W> in[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i)
      if (first + i * step < packs) in[i] = number_at<From, T, W>(op, x, first + i * step);
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      if (first + i * step >= packs) continue;
      float values[W];
      widen(in[i], values);
#pragma unroll
      for (int k = 0; k < W; ++k) most = larger(most, fabsf(values[k]));
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < op.n - packs) most = larger(most, fabsf(widened(x[packs + threadIdx.x])));
  most = block_maximum(most);
  if (threadIdx.x == 0) op.maxima[blockIdx.x] = most;
}

__global__ void __launch_bounds__(kThreads) maximum_of_all(AbsoluteMaximum op, int parts) {
  if (op.unless && *op.unless > 0.0F) parts = 0;
  float most = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += kThreads) most = larger(most, op.maxima[i]);
  most = block_maximum(most);
  if (threadIdx.x == 0) *op.out = most;
}

// --- cast

constexpr int kTileRows = kEightBitsRows, kTileColumns = kEightBitsColumns, kPad = 4, kBytes = 16;

// The largest of these and `most`; what is not finite becomes NaN.
template <int W>
__device__ __forceinline__ float largest_of(float (&x)[W], float most) {
#pragma unroll
  for (int i = 0; i < W; ++i) {
    most = larger(most, fabsf(x[i]));
    if (!(fabsf(x[i]) <= FLT_MAX)) x[i] = NAN;
  }
  return most;
}

// A tile's columns, sixteen rows to a thread.
__device__ __forceinline__ void write_columns(const EightBits& op,
                                              const uint8_t (&tile)[kTileColumns][kTileRows + kPad], int64_t row,
                                              int64_t column) {
  constexpr int kParts = kTileRows / kBytes;
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * kParts; i += kThreads) {
    const int c = i / kParts, r = i % kParts * kBytes;
    if (column + c >= op.k || row + r >= op.padded) continue;
    uint4 raw;
    memcpy(&raw, &tile[c][r], sizeof raw);
    store_raw(reinterpret_cast<uint4*>(op.columns + (column + c) * op.padded + row + r), raw);
  }
}

template <class From, class T, int W, __nv_fp8_interpretation_t kType>
__global__ void __launch_bounds__(kThreads) cast_tiles(EightBits op, unsigned across, bool halves) {
  constexpr int kOfRow = kTileColumns / W, kAtOnce = kThreads / kOfRow;  // threads of a row; rows at a time
  __shared__ __align__(4) uint8_t tile[kTileColumns][kTileRows + kPad];
  const int64_t row = static_cast<int64_t>(blockIdx.x / across) * kTileRows,
                column = static_cast<int64_t>(tile_in_turn(halves, blockIdx.x % across, across)) * kTileColumns;
  const int c = static_cast<int>(threadIdx.x) % kOfRow * W, begin = static_cast<int>(threadIdx.x) / kOfRow;
  const float scale = *op.scale;
  const T* const x = static_cast<const T*>(op.x);
  float most = 0.0F;
  for (int r = begin; r < kTileRows; r += kAtOnce) {
    const bool there = row + r < op.n && column + c < op.k;
    const int64_t at = (row + r) * op.k + column + c;
    uint8_t bytes[W] = {};
    if (there) {
      float values[W];
      widen(From::template at<T, W>(x, op.from, op.k, row + r, column + c), values);
      if (op.maxima) most = largest_of(values, most);
      narrow_to_bytes<kType>(values, scale, bytes);
      if (op.rows) store_bytes(op.rows + at, bytes);
    }
    if (op.columns) {
#pragma unroll
      for (int i = 0; i < W; ++i) tile[c + i][r] = bytes[i];
    }
  }
  if (op.maxima) {
    most = block_maximum(most);
    if (threadIdx.x == 0) op.maxima[blockIdx.x] = most;
  }
  if (!op.columns) return;
  __syncthreads();
  write_columns(op, tile, row, column);
}

template <class From, class T, int W, __nv_fp8_interpretation_t kType>
int cast_wide(const EightBits& op, void* stream) {
  const int64_t across = blocks_of(op.k, kTileColumns), parts = eight_bits_parts(op);
  const bool halves = in_halves(op.from, op.k, kTileColumns);
  const int error =
      launch(cast_tiles<From, T, W, kType>, parts, kThreads, stream, op, static_cast<unsigned>(across), halves);
  if (error || !op.maxima) return error;
  AbsoluteMaximum of_all;
  of_all.maxima = op.maxima, of_all.out = op.out;
  return launch(maximum_of_all, 1, kThreads, stream, of_all, static_cast<int>(parts));
}

template <class T, __nv_fp8_interpretation_t kType>
int cast_as(const EightBits& op, void* stream) {
  return with_width<T>(op.k, {op.x, op.rows},
                       [&](auto width) { return cast_wide<Itself, T, decltype(width)::value, kType>(op, stream); });
}

template <class From, class T, int W>
int maximum_as(const AbsoluteMaximum& op, void* stream) {
  const int64_t parts = std::clamp<int64_t>(blocks_of(op.n, int64_t{kThreads} * W), 1, kMostMaxima);
  const int error = launch(maxima_of_parts<From, T, W>, parts, kThreads, stream, op);
  return error ? error : launch(maximum_of_all, 1, kThreads, stream, op, static_cast<int>(parts));
}

}  // namespace

int absolute_maximum_cuda(const AbsoluteMaximum& op, void* stream) {
  if (op.from.kind != CastFrom::Kind::itself)
    return with_computed(op, {}, [&](auto from, auto width) {
      return maximum_as<decltype(from), Computed, decltype(width)::value>(op, stream);
    });
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_width<T>(kWidth<T>, {op.x},
                         [&](auto width) { return maximum_as<Itself, T, decltype(width)::value>(op, stream); });
  });
}

int eight_bits_cuda(const EightBits& op, void* stream) {
  if (op.columns && (op.padded < op.n || op.padded % kBytes != 0 || !aligned({op.columns})))
    return cudaErrorInvalidValue;
  if (!op.maxima != !op.out) return cudaErrorInvalidValue;
  if (op.from.kind != CastFrom::Kind::itself)
    return with_computed(op, {op.rows}, [&](auto from, auto width) {
      using From = decltype(from);
      constexpr int W = decltype(width)::value;
      if constexpr (From::kIsGradient)
        if (op.e5m2) return cast_wide<From, Computed, W, __NV_E5M2>(op, stream);
      return op.e5m2 ? int{cudaErrorInvalidValue} : cast_wide<From, Computed, W, __NV_E4M3>(op, stream);
    });
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return op.e5m2 ? cast_as<T, __NV_E5M2>(op, stream) : cast_as<T, __NV_E4M3>(op, stream);
  });
}

}  // namespace drivetrain::kernels
