// Embedding backward on CUDA: the tokens come sorted by id, and every warp looks at one of them and at 32 packs of
// columns. The warp at the first token of an id adds all its rows in order of position, the others leave at once. The
// same additions in the same order as on the CPU.
//
// Bytes moved per element of dy: its own, and 8 per element of a row of dweight that is hit. An id that fills the batch
// is the slow case: its rows are read by one warp per 32 packs, 8 rows in flight.
#include "kernels/embedding/embedding.h"

#include "kernels/common/reduce.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kFlight = 8;

// One at a time or in 16 bytes, as W allows.
template <int W>
__device__ __forceinline__ void read(const float* from, float (&x)[W]) {
  constexpr int kStep = W < 4 ? 1 : 4;
#pragma unroll
  for (int i = 0; i < W; i += kStep) {
    const Pack<float, kStep> pack = load<kStep>(from + i);
#pragma unroll
    for (int j = 0; j < kStep; ++j) x[i + j] = pack.unit[j];
  }
}

template <int W>
__device__ __forceinline__ void write(const float (&x)[W], float* to) {
  constexpr int kStep = W < 4 ? 1 : 4;
#pragma unroll
  for (int i = 0; i < W; i += kStep) {
    Pack<float, kStep> pack;
#pragma unroll
    for (int j = 0; j < kStep; ++j) pack.unit[j] = x[i + j];
    store(to + i, pack);
  }
}

// Adds `count` (at most 32) rows of dy: lane k of the warp knows the k-th one's number.
template <class T, int W>
__device__ __forceinline__ void add_rows(const T* dy, int64_t columns, int count, long long row, bool here,
                                         float (&sum)[W]) {
  for (int first = 0; first < count; first += kFlight) {
    Pack<T, W> in[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      const long long other = __shfl_sync(kAllLanes, row, (first + k) % 32);
      if (here && first + k < count) in[k] = load<W>(dy + other * columns);
    }
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      if (!here || first + k >= count) continue;
      float x[W];
      widen(in[k], x);
#pragma unroll
      for (int i = 0; i < W; ++i) sum[i] += x[i];
    }
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads, 6) add_segments(EmbeddingBackward op, unsigned chunks) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t start = static_cast<int64_t>(blockIdx.x / chunks) * kWarps + warp;
  const int64_t column = (static_cast<int64_t>(blockIdx.x % chunks) * 32 + lane) * W;
  if (start >= op.tokens) return;  // here and below: the whole warp
  const int64_t id = op.sorted_ids[start];
  if (id < 0 || id >= op.vocabulary || (start > 0 && op.sorted_ids[start - 1] == id)) return;

  const bool here = column < op.columns;
  float* out = op.dweight + id * op.columns + column;
  float sum[W] = {};
  if (here) read(out, sum);
  for (int64_t first = start; first < op.tokens; first += 32) {
    const int64_t at = first + lane;
    const bool mine = at < op.tokens && op.sorted_ids[at] == id;
    const int count = __popc(__ballot_sync(kAllLanes, mine));
    const long long row = mine ? static_cast<long long>(op.order[at]) : 0;
    add_rows<T, W>(static_cast<const T*>(op.dy) + column, op.columns, count, row, here, sum);
    if (count < 32) break;
  }
  if (here) write(sum, out);
}

}  // namespace

int embedding_backward_cuda(const EmbeddingBackward& op, void* stream) {
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_width<T>(op.columns, {op.dy, op.dweight}, [&](auto width) -> int {
      constexpr int W = decltype(width)::value;
      const int64_t chunks = blocks_of(op.columns / W, 32);
      return launch(add_segments<T, W>, blocks_of(op.tokens, kWarps) * chunks, kThreads, stream, op,
                    static_cast<unsigned>(chunks));
    });
  });
}

}  // namespace drivetrain::kernels
