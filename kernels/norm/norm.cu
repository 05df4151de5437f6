// Layer norm and RMS norm on CUDA, forward. A row is read once and kept in registers: by a warp if it is short, by a
// block of 256 threads up to 8192 columns. Longer rows, and rows that do not allow 16-byte accesses, are walked over
// again (from cache).
//
// Bytes moved per element with `delta`: two elements read, two written; without it one and one. Weight and bias stay in
// cache. Without `y` one element less is written.
#include "kernels/norm/norm.h"

#include "kernels/common/reduce.cuh"
#include "kernels/norm/normed.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpsOfBlock = kThreads / 32;

// What is normalised is the sum as stored, rounded to T: that is what backward reads.
template <class T, int W>
__device__ __forceinline__ Pack<T, W> added(const Pack<T, W>& x, const Pack<T, W>& delta) {
  float a[W], b[W];
  widen(x, a);
  widen(delta, b);
#pragma unroll
  for (int i = 0; i < W; ++i) a[i] += b[i];
  return narrowed<T>(a);
}

// x + delta of P packs, p-th at `at(p)` if `has(p)`, stored as `sum`. All loads come before the first use and before
// any store, which might be to the same memory.
template <class T, int W, int P, class Has, class At>
__device__ __forceinline__ void sum_packs(const NormForward& op, Has has, At at, Pack<T, W> (&x)[P]) {
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (has(p)) x[p] = load<W>(static_cast<const T*>(op.x) + at(p));
  }
  if (op.delta) {
    Pack<T, W> delta[P];
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (has(p)) delta[p] = load<W>(static_cast<const T*>(op.delta) + at(p));
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (has(p)) x[p] = added(x[p], delta[p]);
    }
  }
  if (!op.sum) return;
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (has(p)) store(static_cast<T*>(op.sum) + at(p), x[p]);
  }
}

template <class T, int W>
__device__ __forceinline__ void write_y(const NormForward& op, int64_t row, int64_t column, const Pack<T, W>& pack,
                                        float mean, float rstd) {
  if (!op.y) return;
  float x[W], weight[W], bias[W];
  widen(pack, x);
  load_or_zero<W>(static_cast<const T*>(op.weight), column, weight);
  load_or_zero<W>(static_cast<const T*>(op.bias), column, bias);
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] = normed(x[i], mean, rstd, op.offset + weight[i], bias[i]);
  store(static_cast<T*>(op.y) + row * op.columns + column, narrowed<T>(x));
}

template <class T, int W>
__device__ __forceinline__ float total(const Pack<T, W>& pack) {
  float x[W], sum = 0.0F;
  widen(pack, x);
#pragma unroll
  for (int i = 0; i < W; ++i) sum += x[i];
  return sum;
}

template <class T, int W>
__device__ __forceinline__ float deviation(const Pack<T, W>& pack, float mean) {
  float x[W], sum = 0.0F;
  widen(pack, x);
#pragma unroll
  for (int i = 0; i < W; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

__device__ __forceinline__ float reciprocal_root(const NormForward& op, float squares) {
  return 1.0F / sqrtf(squares / static_cast<float>(op.columns) + static_cast<float>(op.epsilon));
}

__device__ __forceinline__ void write_moments(const NormForward& op, int64_t row, float mean, float rstd) {
  if (op.mean) op.mean[row] = mean;
  op.rstd[row] = rstd;
}

using RowSum = GroupSum<1, kWarpsOfBlock>;

// `group` threads (32 or 256) per row, P packs per thread.
template <class T, int P>
__global__ void __launch_bounds__(kThreads) forward_kept(NormForward op, int group) {
  constexpr int W = kWidth<T>;
  __shared__ RowSum::Shared shared;
  RowSum reduce(shared, group / 32);
  const int groups = kThreads / group, thread = static_cast<int>(threadIdx.x) % group;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * groups + static_cast<int>(threadIdx.x) / group;
  // A group beyond the last row goes along with the others: they meet at barriers.
  const auto has = [&](int p) { return row < op.rows && (static_cast<int64_t>(p) * group + thread) * W < op.columns; };
  const auto column = [&](int p) { return (static_cast<int64_t>(p) * group + thread) * W; };

  Pack<T, W> x[P];
  float sum[1] = {0.0F}, mean = 0.0F;
  sum_packs(
      op, has, [&](int p) { return row * op.columns + column(p); }, x);
  if (!op.rms) {
#pragma unroll
    for (int p = 0; p < P; ++p) sum[0] += has(p) ? total(x[p]) : 0.0F;
    reduce(sum);
    mean = sum[0] / static_cast<float>(op.columns);
#pragma unroll
    for (int p = 0; p < P; ++p) stay_packed(x[p]);
  }
  float squares[1] = {0.0F};
#pragma unroll
  for (int p = 0; p < P; ++p) squares[0] += has(p) ? deviation(x[p], mean) : 0.0F;
  reduce(squares);
  const float rstd = reciprocal_root(op, squares[0]);
#pragma unroll
  for (int p = 0; p < P; ++p) {
    stay_packed(x[p]);
    if (has(p)) write_y(op, row, column(p), x[p], mean, rstd);
  }
  if (thread == 0 && row < op.rows) write_moments(op, row, mean, rstd);
}

// One block per row of any length, in steps of W. A thread reads again only what it wrote itself.
template <class T, int W>
__global__ void __launch_bounds__(kThreads) forward_walked(NormForward op) {
  __shared__ RowSum::Shared shared;
  RowSum reduce(shared, kWarpsOfBlock);
  const int64_t row = blockIdx.x, start = row * op.columns;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * W, step = static_cast<int64_t>(kThreads) * W;
  const T* kept = static_cast<const T*>(op.sum ? op.sum : op.x) + start;

  float sum[1] = {0.0F}, squares[1] = {0.0F};
  for (int64_t i = first; i < op.columns; i += step) {
    Pack<T, W> x[1];
    sum_packs(
        op, [](int) { return true; }, [&](int) { return start + i; }, x);
    sum[0] += total(x[0]);
  }
  reduce(sum);
  const float mean = op.rms ? 0.0F : sum[0] / static_cast<float>(op.columns);
  for (int64_t i = first; i < op.columns; i += step) squares[0] += deviation(load<W>(kept + i), mean);
  reduce(squares);
  const float rstd = reciprocal_root(op, squares[0]);
  for (int64_t i = first; i < op.columns; i += step) write_y(op, row, i, load<W>(kept + i), mean, rstd);
  if (threadIdx.x == 0) write_moments(op, row, mean, rstd);
}

template <class T, int P>
int keep(const NormForward& op, int group, void* stream) {
  return launch(forward_kept<T, P>, blocks_of(op.rows, kThreads / group), kThreads, stream, op, group);
}

template <class T>
int forward(const NormForward& op, void* stream) {
  return with_width<T>(op.columns, {op.x, op.delta, op.weight, op.bias, op.sum, op.y}, [&](auto width) -> int {
    constexpr int W = decltype(width)::value;
    const int64_t packs = op.columns / W;
    if constexpr (W > 1) {
      constexpr int kMost = 32 / W;  // packs per thread: 32 elements
      const int group = packs <= 32 * kMost ? 32 : kThreads;
      if (packs <= group) return keep<T, 1>(op, group, stream);
      if (packs <= group * 2) return keep<T, 2>(op, group, stream);
      if (packs <= group * 4) return keep<T, 4>(op, group, stream);
      if constexpr (kMost > 4) {
        if (packs <= group * 8) return keep<T, 8>(op, group, stream);
      }
    }
    return launch(forward_walked<T, W>, op.rows, kThreads, stream, op);
  });
}

// Rows are shared between `kFoldRows` lanes of threads, each adding its own in order; the lanes are folded in halves.
constexpr int kFoldColumns = 32, kFoldRows = 32;

template <class T>
__global__ void __launch_bounds__(kFoldColumns* kFoldRows) sum_columns(ColumnSum op) {
  __shared__ float lanes[kFoldRows][kFoldColumns];
  const int x = static_cast<int>(threadIdx.x) % kFoldColumns, y = static_cast<int>(threadIdx.x) / kFoldColumns;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kFoldColumns + x;
  const float* const partial = static_cast<const float*>(op.partial);
  float sum = 0.0F;
  if (column < op.columns) {
#pragma unroll 4
    for (int64_t row = y; row < op.rows; row += kFoldRows) sum += partial[row * op.columns + column];
  }
  lanes[y][x] = sum;
  for (int half = kFoldRows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (y < half) lanes[y][x] += lanes[y + half][x];
  }
  if (y > 0 || column >= op.columns) return;
  T* out = static_cast<T*>(op.out) + column;
  const float result[1] = {op.add ? widened(*out) + lanes[0][x] : lanes[0][x]};
  store(out, narrowed<T>(result));
}

// A thread has W columns and every eighth row of its block's.
constexpr int kPartPacks = 32, kPartLanes = 8;

template <class T, int W>
__global__ void __launch_bounds__(kPartPacks* kPartLanes) sum_blocks(ColumnParts op, unsigned chunks) {
  constexpr int kRows = static_cast<int>(kNormRows) / kPartLanes;
  __shared__ float lanes[kPartLanes][kPartPacks * W];
  const int x = static_cast<int>(threadIdx.x) % kPartPacks, y = static_cast<int>(threadIdx.x) / kPartPacks;
  const int64_t block = blockIdx.x / chunks, start = static_cast<int64_t>(blockIdx.x % chunks) * kPartPacks * W,
                column = start + x * W, row = block * kNormRows + y;
  float sum[W] = {};
  if (column < op.columns) {
    Pack<T, W> packs[kRows];
    const T* const from = static_cast<const T*>(op.x) + column;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (row + i * kPartLanes < op.rows) packs[i] = load<W>(from + (row + i * kPartLanes) * op.columns);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row + i * kPartLanes >= op.rows) continue;
      float values[W];
      widen(packs[i], values);
#pragma unroll
      for (int k = 0; k < W; ++k) sum[k] += values[k];
    }
  }
#pragma unroll
  for (int k = 0; k < W; ++k) lanes[y][x * W + k] = sum[k];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kPartPacks * W && start + i < op.columns;
       i += kPartPacks * kPartLanes) {
    float all = 0.0F;
#pragma unroll
    for (int lane = 0; lane < kPartLanes; ++lane) all += lanes[lane][i];
    op.partial[block * op.columns + start + i] = all;
  }
}

}  // namespace

int norm_forward_cuda(const NormForward& op, void* stream) {
  return with_type(op.dtype, [&](auto type) { return forward<typename decltype(type)::type>(op, stream); });
}

int column_sum_cuda(const ColumnSum& op, void* stream) {
  return with_type(op.dtype, [&](auto type) {
    return launch(sum_columns<typename decltype(type)::type>, blocks_of(op.columns, kFoldColumns),
                  kFoldColumns * kFoldRows, stream, op);
  });
}

int column_parts_cuda(const ColumnParts& op, void* stream) {
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_width<T>(op.columns, {op.x}, [&](auto width) {
      constexpr int W = decltype(width)::value;
      const int64_t chunks = blocks_of(op.columns, kPartPacks * W);
      return launch(sum_blocks<T, W>, chunks * blocks_of(op.rows, kNormRows), kPartPacks * kPartLanes, stream, op,
                    static_cast<unsigned>(chunks));
    });
  });
}

}  // namespace drivetrain::kernels
