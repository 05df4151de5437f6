// Rotary embedding on CUDA: a thread keeps its place in a token (a head and W pairs of columns) and walks over tokens,
// so that the place is found once. Two elements moved per element of qkv; cosines and sines stay in cache.
#include "kernels/rotary/rotary.h"

#include "kernels/rotary/pairs.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTokens = 8, kFlight = 4;  // tokens per block, and of those loaded at a time; with sums kRotaryRows

template <int W>
__device__ __forceinline__ void add(const float (&x)[W], float (&sum)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) sum[i] += x[i];
}

template <class T, int W, bool kBack, bool kSums>
__global__ void __launch_bounds__(kThreads) turn_tokens(Rotary op, int64_t per_head, unsigned chunks) {
  constexpr int kOfBlock = kSums ? static_cast<int>(kRotaryRows) : kTokens;
  const int64_t heads = op.heads + 2 * op.groups, qkv_width = heads * op.head_dim, pairs = pairs_of(op);
  const int64_t item = static_cast<int64_t>(blockIdx.x % chunks) * blockDim.x + threadIdx.x;
  if (item >= heads * per_head) return;
  const Pairs<T> at = pairs_at<T>(op, item, per_head, W);
  const int64_t apart = at.second - at.first;
  T* const joined = static_cast<T*>(op.qkv) + at.first;
  const T* from = kBack ? at.part : joined;
  T* to = kBack ? joined : at.part;
  const int64_t from_width = kBack ? at.width : qkv_width, to_width = kBack ? qkv_width : at.width;
  Pack<T, W> bias_a, bias_b;
  if (op.bias) {
    bias_a = load<W>(static_cast<const T*>(op.bias) + at.first);
    bias_b = load<W>(static_cast<const T*>(op.bias) + at.second);
  }
  const int64_t block = blockIdx.x / chunks, begin = block * kOfBlock, end = min(begin + kOfBlock, op.tokens);
  float sum_a[W] = {}, sum_b[W] = {};
  int64_t position = begin % op.sequence;
  for (int64_t first = begin; first < end; first += kFlight) {
    Pack<T, W> low[kFlight], high[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      if (first + k >= end) continue;
      low[k] = load<W>(from + (first + k) * from_width);
      high[k] = load<W>(from + (first + k) * from_width + apart);
    }
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      if (first + k >= end) continue;
      float a[W], b[W];
      widen(low[k], a);
      widen(high[k], b);
      if (op.bias) add(bias_a, a), add(bias_b, b);
      if (at.turned) turn<W, kBack>(op, position * pairs + at.angle, a, b);
      if constexpr (kSums) add(a, sum_a), add(b, sum_b);
      T* out = to + (first + k) * to_width;
      store(out, narrowed<T>(a));
      store(out + apart, narrowed<T>(b));
      position = position + 1 == op.sequence ? 0 : position + 1;
    }
  }
  if constexpr (kSums) {
    float* const sums = op.partial + block * qkv_width;
#pragma unroll
    for (int i = 0; i < W; ++i) sums[at.first + i] = sum_a[i], sums[at.second + i] = sum_b[i];
  }
}

template <class T, bool kBack, bool kSums>
int run(const Rotary& op, void* stream) {
  const int64_t half = op.head_dim / 2;
  // Half a head must be whole packs, and what turns; an odd head never is.
  const bool whole = op.head_dim % 2 == 0 && (!op.cos || pairs_of(op) % kWidth<T> == 0);
  const int64_t unit = whole ? half : 1;
  return with_width<T>(unit, {op.qkv, op.q, op.k, op.v, kBack ? nullptr : op.bias, op.cos, op.sin},
                       [&](auto width) -> int {
                         constexpr int W = decltype(width)::value;
                         const int64_t per_head = W > 1 ? half / W : blocks_of(op.head_dim, 2);
                         const Split shared = split((op.heads + 2 * op.groups) * per_head, kThreads);
                         return launch(turn_tokens<T, W, kBack, kSums>,
                                       shared.blocks * blocks_of(op.tokens, kSums ? kRotaryRows : kTokens),
                                       shared.threads, stream, op, per_head, static_cast<unsigned>(shared.blocks));
                       });
}

}  // namespace

int rotary_forward_cuda(const Rotary& op, void* stream) {
  return with_type(op.dtype, [&](auto type) { return run<typename decltype(type)::type, false, false>(op, stream); });
}

int rotary_backward_cuda(const Rotary& op, void* stream) {
  Rotary unbiased = op;
  unbiased.bias = nullptr;
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return op.partial ? run<T, true, true>(unbiased, stream) : run<T, true, false>(unbiased, stream);
  });
}

}  // namespace drivetrain::kernels
