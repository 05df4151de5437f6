// Layer norm and RMS norm on CUDA, backward: one block of 512 threads for `each` rows (norm_rows_cuda), so that dweight
// and dbias grow in its registers. It is divided into groups of threads with a row each; a step takes R rows per group
// and reduces all of them at once, which keeps enough loads in flight. Rows that do not fit keep their sums in
// `partial` and are walked over.
//
// Bytes moved per element: dy, sum, dsum read and dx written once.
#include "kernels/common/reduce.cuh"
#include "kernels/norm/norm.h"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarpsOfBlock = kThreads / 32;

struct Row {
  float mean = 0.0F, rstd = 0.0F;
};

__device__ __forceinline__ Row row_at(const NormBackward& op, int64_t row) {
  return {op.rms ? 0.0F : op.mean[row], op.rstd[row]};
}

// Adds the row's sums of g = dy * (offset + weight) and of g * normal, as far as this pack goes.
template <class T, int W>
__device__ __forceinline__ void add_means(const Pack<T, W>& dy, const Pack<T, W>& sum, const Pack<T, W>& weight,
                                          float offset, Row row, float& mean_g, float& mean_gx) {
  float d[W], x[W], w[W];
  widen(dy, d);
  widen(sum, x);
  widen(weight, w);
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const float g = d[i] * (offset + w[i]);
    mean_g += g;
    mean_gx += g * ((x[i] - row.mean) * row.rstd);
  }
}

// dx of this pack; dweight and dbias grow by its terms.
template <class T, int W>
__device__ __forceinline__ Pack<T, W> gradient(const Pack<T, W>& dy, const Pack<T, W>& sum, const Pack<T, W>& weight,
                                               float offset, const float (&along)[W], Row row, float mean_g,
                                               float mean_gx, float (&dweight)[W], float (&dbias)[W]) {
  float d[W], x[W], w[W];
  widen(dy, d);
  widen(sum, x);
  widen(weight, w);
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const float normal = (x[i] - row.mean) * row.rstd;
    dweight[i] += d[i] * normal;
    dbias[i] += d[i];
    x[i] = (d[i] * (offset + w[i]) - mean_g - normal * mean_gx) * row.rstd + along[i];
  }
  return narrowed<T>(x);
}

// One at a time: `partial` need not be aligned.
template <int W>
__device__ __forceinline__ void get(const float* from, float (&x)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] = from[i];
}

template <int W>
__device__ __forceinline__ void put(const float (&x)[W], float* to) {
#pragma unroll
  for (int i = 0; i < W; ++i) to[i] = x[i];
}

// Adds the groups' sums in order of group and writes them. Only needed if there are several, and then P is 1.
template <int W>
__device__ void fold_groups(float (*lanes)[kThreads], float (&x)[W], int group, bool here, float* to) {
  __syncthreads();
#pragma unroll
  for (int i = 0; i < W; ++i) lanes[i][threadIdx.x] = x[i];
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= group || !here) return;
#pragma unroll
  for (int i = 0; i < W; ++i) {
    float sum = lanes[i][threadIdx.x];
    for (int other = static_cast<int>(threadIdx.x) + group; other < kThreads; other += group) sum += lanes[i][other];
    to[i] = sum;
  }
}

template <class T, int P, int R>
__global__ void __launch_bounds__(kThreads) backward_kept(NormBackward op, int64_t each, int group) {
  constexpr int W = kWidth<T>;
  using Sums = GroupSum<2 * R, kWarpsOfBlock>;
  __shared__ typename Sums::Shared shared;
  __shared__ float lanes[P == 1 ? W : 1][kThreads];
  Sums reduce(shared, group / 32);
  const int groups = kThreads / group, thread = static_cast<int>(threadIdx.x) % group;
  const int mine = static_cast<int>(threadIdx.x) / group;
  const auto column = [&](int p) { return (static_cast<int64_t>(p) * group + thread) * W; };
  const T *dy = static_cast<const T*>(op.dy), *sum = static_cast<const T*>(op.sum),
          *dsum = static_cast<const T*>(op.dsum);

  Pack<T, W> weight[P];
  float dweight[P][W] = {}, dbias[P][W] = {};
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (column(p) < op.columns) weight[p] = load<W>(static_cast<const T*>(op.weight) + column(p));
  }
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * each;
  const int64_t end = begin + each < op.rows ? begin + each : op.rows;
  // Every thread takes as many steps as every other: they meet at barriers.
  for (int64_t first = begin; first < end; first += static_cast<int64_t>(groups) * R) {
    Pack<T, W> d[R][P], x[R][P], along[R][P];
    Row rows[R];
    float means[2 * R] = {};
    const auto row = [&](int r) { return first + static_cast<int64_t>(r) * groups + mine; };
    const auto has = [&](int r, int p) { return row(r) < end && column(p) < op.columns; };
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row(r) < end) rows[r] = row_at(op, row(r));
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!has(r, p)) continue;
        const int64_t at = row(r) * op.columns + column(p);
        d[r][p] = load<W>(dy + at);
        x[r][p] = load<W>(sum + at);
        if (dsum) along[r][p] = load<W>(dsum + at);
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (has(r, p)) add_means(d[r][p], x[r][p], weight[p], op.offset, rows[r], means[2 * r], means[2 * r + 1]);
      }
    }
    reduce(means);
    const float scale = 1.0F / static_cast<float>(op.columns);
#pragma unroll
    for (int p = 0; p < P; ++p) stay_packed(weight[p]);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float mean_g = op.rms ? 0.0F : means[2 * r] * scale, mean_gx = means[2 * r + 1] * scale;
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!has(r, p)) continue;
        stay_packed(d[r][p]);
        stay_packed(x[r][p]);
        float residual[W] = {};
        if (dsum) widen(along[r][p], residual);
        store(
            static_cast<T*>(op.dx) + row(r) * op.columns + column(p),
            gradient(d[r][p], x[r][p], weight[p], op.offset, residual, rows[r], mean_g, mean_gx, dweight[p], dbias[p]));
      }
    }
  }
  float* dweight_out = op.partial + static_cast<int64_t>(blockIdx.x) * op.columns;
  float* dbias_out = dweight_out + static_cast<int64_t>(gridDim.x) * op.columns;
  if constexpr (P == 1) {
    fold_groups(lanes, dweight[0], group, column(0) < op.columns, dweight_out + column(0));
    fold_groups(lanes, dbias[0], group, column(0) < op.columns, dbias_out + column(0));
  } else {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (column(p) >= op.columns) continue;
      put(dweight[p], dweight_out + column(p));
      put(dbias[p], dbias_out + column(p));
    }
  }
}

// Rows of any length, one after the other, in steps of W. A thread's columns are the same in every row, so what it adds
// to `partial` and reads again is its own.
template <class T, int W>
__global__ void __launch_bounds__(kThreads) backward_walked(NormBackward op, int64_t each) {
  using Sums = GroupSum<2, kWarpsOfBlock>;
  __shared__ typename Sums::Shared shared;
  Sums reduce(shared, kWarpsOfBlock);
  const int64_t first = static_cast<int64_t>(threadIdx.x) * W, step = static_cast<int64_t>(kThreads) * W;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * each;
  const int64_t end = begin + each < op.rows ? begin + each : op.rows;
  const T *dy = static_cast<const T*>(op.dy), *sum = static_cast<const T*>(op.sum),
          *dsum = static_cast<const T*>(op.dsum);
  const T* weight = static_cast<const T*>(op.weight);
  float* dweight_out = op.partial + static_cast<int64_t>(blockIdx.x) * op.columns;
  float* dbias_out = dweight_out + static_cast<int64_t>(gridDim.x) * op.columns;
  for (int64_t r = begin; r < end; ++r) {
    const Row row = row_at(op, r);
    const int64_t start = r * op.columns;
    float means[2] = {};
    for (int64_t i = first; i < op.columns; i += step) {
      add_means(load<W>(dy + start + i), load<W>(sum + start + i), load<W>(weight + i), op.offset, row, means[0],
                means[1]);
    }
    reduce(means);
    const float scale = 1.0F / static_cast<float>(op.columns);
    const float mean_g = op.rms ? 0.0F : means[0] * scale, mean_gx = means[1] * scale;
    for (int64_t i = first; i < op.columns; i += step) {
      float dweight[W] = {}, dbias[W] = {}, residual[W];
      if (r > begin) {
        get(dweight_out + i, dweight);
        get(dbias_out + i, dbias);
      }
      load_or_zero<W>(dsum, start + i, residual);
      store(static_cast<T*>(op.dx) + start + i,
            gradient(load<W>(dy + start + i), load<W>(sum + start + i), load<W>(weight + i), op.offset, residual, row,
                     mean_g, mean_gx, dweight, dbias));
      put(dweight, dweight_out + i);
      put(dbias, dbias_out + i);
    }
  }
}

// The smallest group that holds a row with one pack per thread.
int group_for(int64_t packs) {
  int group = 32;
  while (group < kThreads && group < packs) group *= 2;
  return group;
}

template <class T>
int backward(const NormBackward& op, void* stream) {
  const int64_t each = norm_rows_cuda(op.rows), blocks = blocks_of(op.rows, each);
  return with_width<T>(op.columns, {op.dy, op.dsum, op.sum, op.weight, op.dx}, [&](auto width) -> int {
    constexpr int W = decltype(width)::value;
    const int64_t packs = op.columns / W;
    if constexpr (W > 1) {
      if (packs <= kThreads)
        return launch(backward_kept<T, 1, 4>, blocks, kThreads, stream, op, each, group_for(packs));
      if (packs <= kThreads * 2) return launch(backward_kept<T, 2, 2>, blocks, kThreads, stream, op, each, kThreads);
      if constexpr (W == 4) {
        if (packs <= kThreads * 4) return launch(backward_kept<T, 4, 1>, blocks, kThreads, stream, op, each, kThreads);
      }
    }
    return launch(backward_walked<T, W>, blocks, kThreads, stream, op, each);
  });
}

}  // namespace

int norm_backward_cuda(const NormBackward& op, void* stream) {
  return with_type(op.dtype, [&](auto type) { return backward<typename decltype(type)::type>(op, stream); });
}

}  // namespace drivetrain::kernels
