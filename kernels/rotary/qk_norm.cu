// Norms of queries and keys with rotary embedding on CUDA. As in rotary.cu a thread keeps its place in a token and
// walks over tokens; a head is a power of two of neighbouring threads of one warp, which add up their squares by
// shuffles.
//
// Elements moved per element of qkv: forward 2, backward 3.
#include "kernels/rotary/qk_norm.h"

#include "kernels/common/reduce.cuh"
#include "kernels/rotary/pairs.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTokens = 8, kFlight = 4, kFlightBack = 2;  // tokens per block forward, and of those loaded at a time

// Over `lanes` neighbours, a power of two; every one gets the sum. All lanes of the warp call it.
__device__ __forceinline__ float sum_of_head(float x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

template <int W>
__device__ __forceinline__ float dot(const float (&a)[W], const float (&b)[W]) {
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < W; ++i) sum += a[i] * b[i];
  return sum;
}

// A thread's place, and what of its head's norm does not change with the token.
template <class T, int W>
struct Place {
  Pairs<T> at;
  bool here, normed, is_q;  // whether it has a pair at all, and one that is normed
  Pack<T, W> low, high;     // weights
  Pack<T, W> bias_low, bias_high;

  __device__ Place(const QkNormRotary& op, int64_t item, int64_t per_head) {
    const Rotary& r = op.rotary;
    here = item < (r.heads + 2 * r.groups) * per_head;
    at = pairs_at<T>(r, here ? item : 0, per_head, W);
    const int64_t head = at.first / r.head_dim, column = at.first - head * r.head_dim;
    is_q = head < r.heads, normed = here && head < r.heads + r.groups;
    const T* weight = static_cast<const T*>(is_q ? op.q_weight : op.k_weight) + column;
    low = load<W>(weight), high = load<W>(weight + (at.second - at.first));
    if (!r.bias) return;
    bias_low = load<W>(static_cast<const T*>(r.bias) + at.first);
    bias_high = load<W>(static_cast<const T*>(r.bias) + at.second);
  }

  // offset + weight
  __device__ __forceinline__ void gains(float offset, float (&a)[W], float (&b)[W]) const {
    widen(low, a);
    widen(high, b);
#pragma unroll
    for (int i = 0; i < W; ++i) a[i] += offset, b[i] += offset;
  }
};

__device__ __forceinline__ float reciprocal_root(const QkNormRotary& op, float squares) {
  return 1.0F / sqrtf(squares / static_cast<float>(op.rotary.head_dim) + op.epsilon);
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) norm_tokens(QkNormRotary op, int per_head, unsigned chunks) {
  const Rotary& r = op.rotary;
  const int64_t qkv_width = (r.heads + 2 * r.groups) * r.head_dim, pairs = pairs_of(r);
  // Threads without a pair go along: their warp meets at shuffles.
  Place<T, W> place(op, static_cast<int64_t>(blockIdx.x % chunks) * blockDim.x + threadIdx.x, per_head);
  const Pairs<T>& at = place.at;
  const int64_t apart = at.second - at.first;
  const T* const from = static_cast<const T*>(r.qkv) + at.first;
  const int64_t begin = blockIdx.x / chunks * kTokens, end = min(begin + kTokens, r.tokens);
  int64_t position = begin % r.sequence;
  for (int64_t first = begin; first < end; first += kFlight) {
    Pack<T, W> low[kFlight], high[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      if (first + k >= end || !place.here) continue;
      low[k] = load<W>(from + (first + k) * qkv_width);
      high[k] = load<W>(from + (first + k) * qkv_width + apart);
    }
#pragma unroll
    for (int k = 0; k < kFlight; ++k) {
      if (first + k >= end) continue;
      float a[W] = {}, b[W] = {};
      if (place.here) {
        widen(low[k], a);
        widen(high[k], b);
        if (r.bias) add(place.bias_low, a), add(place.bias_high, b);
      }
      const float rstd = reciprocal_root(op, sum_of_head(dot(a, a) + dot(b, b), per_head));
      if (place.normed) {
        float gain_a[W], gain_b[W];
        place.gains(op.offset, gain_a, gain_b);
#pragma unroll
        for (int i = 0; i < W; ++i) a[i] *= rstd * gain_a[i], b[i] *= rstd * gain_b[i];
      }
      if (place.here) {
        if (at.turned) turn<W, false>(r, position * pairs + at.angle, a, b);
        T* const to = at.part + (first + k) * at.width;
        store(to, narrowed<T>(a));
        store(to + apart, narrowed<T>(b));
      }
      position = position + 1 == r.sequence ? 0 : position + 1;
    }
  }
}

// The gradient (a, b) of normed (x, y): dx = rstd (g - x rstd^2 mean(g x)), g = gradient times gain. The gains' own
// gradients grow by this token's terms.
template <class T, int W>
__device__ __forceinline__ void norm_back(const QkNormRotary& op, const Place<T, W>& place, int per_head,
                                          const float (&x)[W], const float (&y)[W], float (&a)[W], float (&b)[W],
                                          float (&sum_a)[W], float (&sum_b)[W]) {
  float g[W], h[W];
  place.gains(op.offset, g, h);
#pragma unroll
  for (int i = 0; i < W; ++i) g[i] *= a[i], h[i] *= b[i];
  const float squares = sum_of_head(dot(x, x) + dot(y, y), per_head);
  const float products = sum_of_head(dot(g, x) + dot(h, y), per_head);
  if (!place.normed) return;
  const float rstd = reciprocal_root(op, squares);
  const float along = products * rstd * rstd / static_cast<float>(op.rotary.head_dim);
#pragma unroll
  for (int i = 0; i < W; ++i) {
    sum_a[i] += a[i] * (x[i] * rstd), sum_b[i] += b[i] * (y[i] * rstd);
    a[i] = rstd * (g[i] - x[i] * along), b[i] = rstd * (h[i] - y[i] * along);
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) norm_tokens_back(QkNormRotary op, int per_head, unsigned chunks) {
  constexpr int kOfBlock = static_cast<int>(kRotaryRows), kF = kFlightBack;
  const Rotary& r = op.rotary;
  const int64_t qkv_width = (r.heads + 2 * r.groups) * r.head_dim, pairs = pairs_of(r);
  Place<T, W> place(op, static_cast<int64_t>(blockIdx.x % chunks) * blockDim.x + threadIdx.x, per_head);
  const Pairs<T>& at = place.at;
  const int64_t apart = at.second - at.first, block = blockIdx.x / chunks;
  const int64_t begin = block * kOfBlock, end = min(begin + kOfBlock, r.tokens);
  const T* const of_x = static_cast<const T*>(op.x) + at.first;
  float sum_a[W] = {}, sum_b[W] = {};
  int64_t position = begin % r.sequence;
  for (int64_t first = begin; first < end; first += kF) {
    Pack<T, W> low[kF], high[kF], x_low[kF], x_high[kF];
#pragma unroll
    for (int k = 0; k < kF; ++k) {
      if (first + k >= end || !place.here) continue;
      low[k] = load<W>(at.part + (first + k) * at.width);
      high[k] = load<W>(at.part + (first + k) * at.width + apart);
      if (!place.normed) continue;
      x_low[k] = load<W>(of_x + (first + k) * qkv_width);
      x_high[k] = load<W>(of_x + (first + k) * qkv_width + apart);
    }
#pragma unroll
    for (int k = 0; k < kF; ++k) {
      if (first + k >= end) continue;
      float a[W] = {}, b[W] = {}, x[W] = {}, y[W] = {};
      if (place.here) {
        widen(low[k], a);
        widen(high[k], b);
        if (at.turned) turn<W, true>(r, position * pairs + at.angle, a, b);
      }
      if (place.normed) {
        widen(x_low[k], x);
        widen(x_high[k], y);
        if (r.bias) add(place.bias_low, x), add(place.bias_high, y);
      }
      norm_back(op, place, per_head, x, y, a, b, sum_a, sum_b);
      if (place.here) {
        T* const to = static_cast<T*>(r.qkv) + at.first + (first + k) * qkv_width;
        store(to, narrowed<T>(a));
        store(to + apart, narrowed<T>(b));
      }
      position = position + 1 == r.sequence ? 0 : position + 1;
    }
  }
  if (!place.normed) return;
  const int64_t of_q = r.heads * r.head_dim;
  float* const sums = place.is_q ? op.q_partial + block * of_q + at.first
                                 : op.k_partial + block * r.groups * r.head_dim + (at.first - of_q);
#pragma unroll
  for (int i = 0; i < W; ++i) sums[i] = sum_a[i], sums[apart + i] = sum_b[i];
}

template <class T>
bool fits(const QkNormRotary& op) {
  constexpr int64_t kPack = kWidth<T>;
  const Rotary& r = op.rotary;
  const int64_t half = r.head_dim / 2, lanes = half / kPack;
  const bool whole = r.head_dim % (2 * kPack) == 0 && (!r.cos || pairs_of(r) % kPack == 0);
  return whole && lanes <= 32 && (lanes & (lanes - 1)) == 0 &&
         aligned({r.qkv, r.q, r.k, r.v, r.bias, r.cos, r.sin, op.x, op.q_weight, op.k_weight});
}

template <class T, bool kBack>
int run(const QkNormRotary& op, void* stream) {
  constexpr int W = kWidth<T>;
  if (!fits<T>(op)) return cudaErrorInvalidValue;
  const Rotary& r = op.rotary;
  const int64_t per_head = r.head_dim / 2 / W;
  const Split shared = split((r.heads + 2 * r.groups) * per_head, kThreads);
  const int64_t blocks = shared.blocks * blocks_of(r.tokens, kBack ? kRotaryRows : kTokens);
  return launch(kBack ? norm_tokens_back<T, W> : norm_tokens<T, W>, blocks, shared.threads, stream, op,
                static_cast<int>(per_head), static_cast<unsigned>(shared.blocks));
}

}  // namespace

bool qk_norm_fits_cuda(const QkNormRotary& op) {
  return op.rotary.dtype == Dtype::f32    ? fits<float>(op)
         : op.rotary.dtype == Dtype::bf16 ? fits<__nv_bfloat16>(op)
                                          : fits<__half>(op);
}

int qk_norm_forward_cuda(const QkNormRotary& op, void* stream) {
  return with_type(op.rotary.dtype, [&](auto type) { return run<typename decltype(type)::type, false>(op, stream); });
}

int qk_norm_backward_cuda(const QkNormRotary& op, void* stream) {
  return with_type(op.rotary.dtype, [&](auto type) { return run<typename decltype(type)::type, true>(op, stream); });
}

}  // namespace drivetrain::kernels
