// Rotary embedding on CUDA: a thread keeps its place in a token (a head and W pairs of columns) and walks over tokens,
// so that the place is found once. Two elements moved per element of qkv; cosines and sines stay in cache.
#include "kernels/rotary/rotary.h"

#include "kernels/common/device.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTokens = 8, kFlight = 4;  // tokens per block, and of those loaded at a time; with sums kRotaryRows

// Where a thread's pairs lie: `first` and `second` are columns of qkv, `part` the same head in q, k or v.
template <class T>
struct Pairs {
  int64_t first, second, angle, width;  // width: of a token in the part
  T* part;                              // token 0, column `first` of qkv
  bool turned;
};

// Pair `item` of a token. A head of odd size, which can only be split, has its last column in a pair with itself.
template <class T>
__device__ __forceinline__ Pairs<T> pairs_at(const Rotary& op, int64_t item, int64_t per_head, int width) {
  const int64_t head = item / per_head, half = op.head_dim / 2, i = (item - head * per_head) * width;
  const int64_t low = i < half ? i : op.head_dim - 1, high = i < half ? half + i : low;
  const bool is_q = head < op.heads, is_k = !is_q && head < op.heads + op.groups;
  const int64_t first_head = is_q ? 0 : is_k ? op.heads : op.heads + op.groups;
  T* part = static_cast<T*>(is_q ? op.q : is_k ? op.k : op.v);
  return {head * op.head_dim + low,
          head * op.head_dim + high,
          i,
          (is_q ? op.heads : op.groups) * op.head_dim,
          part + (head - first_head) * op.head_dim + low,
          op.cos && (is_q || is_k)};
}

// (a, b) turned by the angles at `at`, or back.
template <int W, bool kBack>
__device__ __forceinline__ void turn(const Rotary& op, int64_t at, float (&a)[W], float (&b)[W]) {
  float cosine[W], sine[W];
#pragma unroll
  for (int k = 0; k < W; k += W < 4 ? 1 : 4) {
    constexpr int kStep = W < 4 ? 1 : 4;
    const Pack<float, kStep> c = load<kStep>(op.cos + at + k), s = load<kStep>(op.sin + at + k);
#pragma unroll
    for (int j = 0; j < kStep; ++j) cosine[k + j] = c.unit[j], sine[k + j] = s.unit[j];
  }
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const float s = kBack ? -sine[i] : sine[i], x = a[i], y = b[i];
    a[i] = x * cosine[i] - y * s;
    b[i] = y * cosine[i] + x * s;
  }
}

// x += bias
template <class T, int W>
__device__ __forceinline__ void add(Pack<T, W>& bias, float (&x)[W]) {
  float b[W];
  stay_packed(bias);
  widen(bias, b);
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] += b[i];
}

template <int W>
__device__ __forceinline__ void add(const float (&x)[W], float (&sum)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) sum[i] += x[i];
}

template <class T, int W, bool kBack, bool kSums>
__global__ void __launch_bounds__(kThreads) turn_tokens(Rotary op, int64_t per_head, unsigned chunks) {
  constexpr int kOfBlock = kSums ? static_cast<int>(kRotaryRows) : kTokens;
  const int64_t heads = op.heads + 2 * op.groups, qkv_width = heads * op.head_dim;
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
      if (at.turned) turn<W, kBack>(op, position * (op.head_dim / 2) + at.angle, a, b);
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
  // Half a head must be whole packs; an odd head never is.
  const int64_t unit = op.head_dim % 2 == 0 ? half : 1;
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
