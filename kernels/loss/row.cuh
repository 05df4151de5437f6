// A row of logits under one block of threads, on CUDA: maximum and sum of exponentials in one pass ("online softmax"),
// the softmax itself in a second that goes backwards over the row, so that what was read last is still in cache. Rows
// may start anywhere: the elements before the first and after the last whole 16 bytes are taken one by one.
#pragma once

#include <cfloat>

#include "kernels/common/reduce.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBatch = 4;  // packs in flight per thread
constexpr float kLog2e = 1.4426950408889634F;

// What becomes of a number in the matrix on its way to the softmax: nothing, or what LogitMap says.
struct SameLogit {
  __device__ __forceinline__ float value(float x) const { return x; }
  __device__ __forceinline__ float slope(float) const { return 1.0F; }
};
struct LogitMap {
  float scale, softcap;  // softcap 0: none

  __device__ __forceinline__ float value(float x) const {
    return softcap > 0.0F ? softcap * tanhf(x * scale / softcap) : x * scale;
  }
  // The slope at the place whose value is `logit`.
  __device__ __forceinline__ float slope(float logit) const {
    const float part = softcap > 0.0F ? logit / softcap : 0.0F;
    return scale * (1.0F - part * part);
  }
};

// body(map) with what the operation says of its logits.
template <class Op, class Body>
int with_map(const Op& op, Body body) {
  if (op.logit_scale == 1.0F && op.softcap == 0.0F) return body(SameLogit{});
  return body(LogitMap{op.logit_scale, op.softcap});
}

// sum of e^(x - top)
struct Online {
  float top = -FLT_MAX, sum = 0.0F;

  template <int W>
  __device__ __forceinline__ void add(const float (&x)[W]) {
    float larger = top;
#pragma unroll
    for (int i = 0; i < W; ++i) larger = fmaxf(larger, x[i]);
    sum *= exp2f((top - larger) * kLog2e);
#pragma unroll
    for (int i = 0; i < W; ++i) sum += exp2f((x[i] - larger) * kLog2e);
    top = larger;
  }
};

// Every thread gets the whole block's, folded in a fixed order.
__device__ Online fold(Online mine) {
  __shared__ float tops[kWarps], sums[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const float top = warp_max(mine.top);
  const float sum = warp_sum(mine.sum * exp2f((mine.top - top) * kLog2e));
  if (lane == 0) tops[warp] = top, sums[warp] = sum;
  __syncthreads();
  Online all;
  for (int i = 0; i < kWarps; ++i) all.top = fmaxf(all.top, tops[i]);
  for (int i = 0; i < kWarps; ++i) all.sum += sums[i] * exp2f((tops[i] - all.top) * kLog2e);
  return all;
}

// A row as whole packs and a few single elements around them.
template <class T>
struct Row {
  static constexpr int W = kWidth<T>;
  T *begin, *packs;
  int64_t columns, count;  // count: of packs
  int head, singles;

  __device__ Row(T* row, int64_t n) : begin(row), columns(n) {
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16);
    const int64_t before = past == 0 ? 0 : (16 - past) / static_cast<int>(sizeof(T));
    head = static_cast<int>(min(before, n));
    packs = row + head;
    count = (n - head) / W;
    singles = static_cast<int>(n - count * W);
  }

  // Single element `i`, in [0, singles): fewer than two packs of them.
  __device__ T* single(int i) const { return i < head ? begin + i : begin + count * W + i; }

  __device__ int64_t batches() const { return (count + kThreads * kBatch - 1) / (kThreads * kBatch); }
  __device__ int64_t pack(int64_t batch, int k) const {
    return (batch * kBatch + k) * kThreads + static_cast<int>(threadIdx.x);
  }
};

template <class T, class Map>
__device__ Online read(const Row<T>& row, Map map) {
  constexpr int W = kWidth<T>;
  Online mine;
  for (int64_t batch = 0; batch < row.batches(); ++batch) {
    Pack<T, W> in[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (row.pack(batch, k) < row.count) in[k] = load<W>(row.packs + row.pack(batch, k) * W);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (row.pack(batch, k) >= row.count) continue;
      float x[W];
      widen(in[k], x);
#pragma unroll
      for (int i = 0; i < W; ++i) x[i] = map.value(x[i]);
      mine.add(x);
    }
  }
  if (static_cast<int>(threadIdx.x) < row.singles) {
    const float x[1] = {map.value(widened(*row.single(static_cast<int>(threadIdx.x))))};
    mine.add(x);
  }
  return mine;
}

template <class T, int W, class Map>
__device__ __forceinline__ Pack<T, W> softmax(const Pack<T, W>& pack, float top, float factor, Map map) {
  float x[W];
  widen(pack, x);
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const float logit = map.value(x[i]);
    x[i] = exp2f((logit - top) * kLog2e) * factor * map.slope(logit);
  }
  return narrowed<T>(x);
}

template <class T, class Map>
__device__ void write(const Row<T>& row, float top, float factor, Map map) {
  constexpr int W = kWidth<T>;
  if (static_cast<int>(threadIdx.x) < row.singles) {
    T* x = row.single(static_cast<int>(threadIdx.x));
    store(x, softmax(load<1>(x), top, factor, map));
  }
  for (int64_t batch = row.batches() - 1; batch >= 0; --batch) {
    Pack<T, W> in[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (row.pack(batch, k) < row.count) in[k] = load<W>(row.packs + row.pack(batch, k) * W);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (row.pack(batch, k) < row.count) store(row.packs + row.pack(batch, k) * W, softmax(in[k], top, factor, map));
    }
  }
}

template <class T>
__device__ void clear(const Row<T>& row) {
  constexpr int W = kWidth<T>;
  const float zeros[W] = {};
  if (static_cast<int>(threadIdx.x) < row.singles) narrow(0.0F, *row.single(static_cast<int>(threadIdx.x)));
  for (int64_t i = threadIdx.x; i < row.count; i += kThreads) store(row.packs + i * W, narrowed<T>(zeros));
}

}  // namespace
}  // namespace drivetrain::kernels
