// Casts to 8 bits with scales of blocks on CUDA: a block of threads reads a tile of 128 x 128 numbers once, keeps it,
// finds the largest of each row and each column, and writes what is wanted: the tile as it lies, and transposed through
// shared memory. Bytes moved per element of 16 bits: three, or four for both.
#include "kernels/eight_bits/eight_bits_blocks.h"

#include <cfloat>
#include <cmath>

#include "kernels/common/device.cuh"
#include "kernels/eight_bits/cast_from.cuh"
#include "kernels/eight_bits/eight_bits.cuh"

namespace drivetrain::kernels {
namespace {

// Older GPUs have no products of such blocks: an empty kernel, which nobody launches there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kCompiled = false;
#else
constexpr bool kCompiled = true;
#endif

constexpr int kThreads = 256, kTile = static_cast<int>(kScaleBlock), kPad = 4, kBytes = 16;

// Where the threads of a block lie in a tile: a pack of W columns each, every kAtOnce-th row.
template <int W>
struct Places {
  static constexpr int kOfRow = kTile / W, kAtOnce = kThreads / kOfRow, kPacks = kTile / kAtOnce;
  static constexpr int kLanes = kOfRow < 32 ? kOfRow : 32, kWarpsOfRow = kOfRow / kLanes;
  const int column = static_cast<int>(threadIdx.x) % kOfRow * W, row = static_cast<int>(threadIdx.x) / kOfRow;
};

struct Scales {
  float of_row[kTile], of_column[kTile];
};

// Where the cast goes, as x lies or transposed: as the header has it.
struct Side {
  Side(uint8_t* values, float* inverses, int64_t rows, int64_t summed, bool square)
      : values(values),
        inverses(inverses),
        height(rounded_up(rows, kScaledRows)),
        across(rounded_up(summed, kScaleBlock)),
        blocks(blocks_of(summed, kScaleBlock)),
        scales(square ? rounded_up(blocks, kScalesTogether) : height) {}
  uint8_t* values;  // [height, across], or null
  float* inverses;  // rows of `scales`
  int64_t height, across, blocks, scales;
};

struct Exponent {
  int value;
  bool none;  // not finite
};

// Of the largest power of two that keeps `most` within e4m3, whose largest number is 1.75 * 2^8.
__device__ __forceinline__ Exponent exponent_of(float most) {
  unsigned bits;
  memcpy(&bits, &most, sizeof bits);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const bool above = (bits & 0x7fffffU) > 0x600000U;  // 1.75
  return {most == 0 ? 0 : min(8 - exponent - (above ? 1 : 0), 126), !(most <= FLT_MAX)};
}
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<unsigned>(exponent + 127) << 23);
}
__device__ __forceinline__ float scale_of(Exponent e) { return e.none ? NAN : power_of_two(e.value); }
__device__ __forceinline__ float inverse_of(Exponent e) { return e.none ? NAN : power_of_two(-e.value); }

// The largest of each row of the tile into of_row.
template <class T, int W>
__device__ __forceinline__ void maxima_of_rows(const Pack<T, W> (&packs)[Places<W>::kPacks], float* of_row) {
  using P = Places<W>;
  __shared__ float parts[kTile][P::kWarpsOfRow];
  const P place;
#pragma unroll
  for (int i = 0; i < P::kPacks; ++i) {
    float values[W], most = 0.0F;
    widen(packs[i], values);
#pragma unroll
    for (int k = 0; k < W; ++k) most = larger(most, fabsf(values[k]));
#pragma unroll
    for (int mask = P::kLanes / 2; mask > 0; mask /= 2) most = larger(most, __shfl_xor_sync(~0U, most, mask));
    if (threadIdx.x % P::kLanes == 0)
      parts[place.row + i * P::kAtOnce][static_cast<int>(threadIdx.x) % P::kOfRow / P::kLanes] = most;
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  if (r >= kTile) return;
  float most = 0.0F;
#pragma unroll
  for (int part = 0; part < P::kWarpsOfRow; ++part) most = larger(most, parts[r][part]);
  of_row[r] = most;
}

// And of each column into of_column.
template <class T, int W>
__device__ __forceinline__ void maxima_of_columns(const Pack<T, W> (&packs)[Places<W>::kPacks], float* of_column) {
  using P = Places<W>;
  __shared__ float parts[P::kAtOnce][kTile];
  const P place;
  float most[W] = {};
#pragma unroll
  for (int i = 0; i < P::kPacks; ++i) {
    float values[W];
    widen(packs[i], values);
#pragma unroll
    for (int k = 0; k < W; ++k) most[k] = larger(most[k], fabsf(values[k]));
  }
#pragma unroll
  for (int k = 0; k < W; ++k) parts[place.row][place.column + k] = most[k];
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c >= kTile) return;
  float all = 0.0F;
#pragma unroll
  for (int part = 0; part < P::kAtOnce; ++part) all = larger(all, parts[part][c]);
  of_column[c] = all;
}

// One for all: the largest of what was found of rows.
__device__ __forceinline__ void join_rows(float* of_row) {
  __syncthreads();
  for (int half = kTile / 2; half > 0; half /= 2) {
    const int r = static_cast<int>(threadIdx.x);
    if (r < half) of_row[r] = larger(of_row[r], of_row[r + half]);
    __syncthreads();
  }
}

// Maxima become scales, and what undoes them is written. `row`, `block`: where the tile begins among the rows of this
// side, and its number among the blocks that are summed.
__device__ __forceinline__ void write_scales(const Side& side, bool square, float* maxima, int64_t row, int64_t block) {
  const int r = static_cast<int>(threadIdx.x);
  if (square) {
    const Exponent e = exponent_of(maxima[0]);
    float* const to = side.inverses + row / kTile * side.scales;
    __syncthreads();  // all have read it
    if (r < kTile) maxima[r] = scale_of(e);
    if (r == 0) to[block] = inverse_of(e);
    if (block + 1 == side.blocks && block + 1 + r < side.scales) to[block + 1 + r] = 1.0F;
    return;
  }
  if (r >= kTile) return;
  const Exponent e = exponent_of(maxima[r]);
  maxima[r] = scale_of(e);
  if (row + r < side.height) side.inverses[block * side.scales + row + r] = inverse_of(e);
}

// The columns of the tile, sixteen rows to a thread.
__device__ __forceinline__ void write_columns(const Side& side, const uint8_t (&tile)[kTile][kTile + kPad], int64_t row,
                                              int64_t column) {
  constexpr int kParts = kTile / kBytes;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kParts; i += kThreads) {
    const int c = i / kParts, r = i % kParts * kBytes;
    if (column + c >= side.height) continue;
    uint4 raw;
    memcpy(&raw, &tile[c][r], sizeof raw);
    store_raw(reinterpret_cast<uint4*>(side.values + (column + c) * side.across + row + r), raw);
  }
}

template <class From, class T, int W>
__global__ void __launch_bounds__(kThreads) cast_blocks(EightBitsBlocks op, Side rows, Side columns, bool halves) {
  if (!kCompiled) return;
  using P = Places<W>;
  __shared__ Scales scales;
  __shared__ __align__(4) uint8_t tile[kTile][kTile + kPad];
  const auto across = static_cast<unsigned>(rows.blocks);
  const int64_t down = blockIdx.x / across, right = tile_in_turn(halves, blockIdx.x % across, across),
                row = down * kTile, column = right * kTile;
  const P place;
  const T* const x = static_cast<const T*>(op.x);
  const bool inside = column + place.column < op.k;
  Pack<T, W> packs[P::kPacks] = {};
#pragma unroll
  for (int i = 0; i < P::kPacks; ++i) {
    const int64_t r = row + place.row + i * P::kAtOnce;
    if (inside && r < op.n) packs[i] = From::template at<T, W>(x, op.from, op.k, r, column + place.column);
  }

  if (rows.values || op.square) maxima_of_rows<T, W>(packs, scales.of_row);
  if (op.square) {
    join_rows(scales.of_row);
    if (threadIdx.x < kTile) scales.of_column[threadIdx.x] = scales.of_row[0];
    __syncthreads();
  } else if (columns.values) {
    maxima_of_columns<T, W>(packs, scales.of_column);
  }
  if (rows.values) write_scales(rows, op.square, scales.of_row, row, right);
  if (columns.values) write_scales(columns, op.square, scales.of_column, column, down);
  __syncthreads();

#pragma unroll
  for (int i = 0; i < P::kPacks; ++i) {
    const int r = place.row + i * P::kAtOnce;
    const bool there = inside && row + r < op.n;
    float values[W];
    widen(packs[i], values);
    if (rows.values && row + r < rows.height) {
      uint8_t bytes[W] = {};
      if (there) narrow_to_bytes<__NV_E4M3>(values, scales.of_row[r], bytes);
      store_bytes(rows.values + (row + r) * rows.across + column + place.column, bytes);
    }
    if (!columns.values) continue;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      uint8_t byte[1] = {};
      const float one[1] = {values[k]};
      if (there) narrow_to_bytes<__NV_E4M3>(one, scales.of_column[place.column + k], byte);
      tile[place.column + k][r] = byte[0];
    }
  }
  if (!columns.values) return;
  __syncthreads();
  write_columns(columns, tile, row, column);
}

// -1: the GPU cannot be asked.
int compute_capability_of_gpu() {
  int device = 0, major = 0;
  const bool asked = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess;
  return asked ? major : -1;
}

template <class From, class T, int W>
int cast_wide(const EightBitsBlocks& op, void* stream) {
  const Side rows(op.rows, op.row_inverses, op.n, op.k, op.square),
      columns(op.columns, op.column_inverses, op.k, op.n, op.square);
  return launch(cast_blocks<From, T, W>, rows.blocks * columns.blocks, kThreads, stream, op, rows, columns,
                in_halves(op.from, op.k, kTile));
}

}  // namespace

int eight_bits_blocks_cuda(const EightBitsBlocks& op, void* stream) {
  if (compute_capability_of_gpu() < 9) return kNoProductsOfBlocks;
  if (!op.rows != !op.row_inverses || !op.columns != !op.column_inverses) return cudaErrorInvalidValue;
  if (!aligned({op.rows, op.row_inverses, op.columns, op.column_inverses})) return cudaErrorInvalidValue;
  if (op.from.kind != CastFrom::Kind::itself)
    return with_computed(op, {}, [&](auto from, auto width) {
      return cast_wide<decltype(from), Computed, decltype(width)::value>(op, stream);
    });
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_width<T>(op.k, {op.x},
                         [&](auto width) { return cast_wide<Itself, T, decltype(width)::value>(op, stream); });
  });
}

}  // namespace drivetrain::kernels
