// The place of a thread of rotary embedding on CUDA: W pairs of columns of a head, which it turns.
#pragma once

#include "kernels/common/device.cuh"
#include "kernels/rotary/rotary.h"

namespace drivetrain::kernels {
namespace {

// Where a thread's pairs lie: `first` and `second` are columns of qkv, `part` the same head in q, k or v.
template <class T>
struct Pairs {
  int64_t first, second, angle, width;  // width: of a token in the part
  T* part;                              // token 0, column `first` of qkv
  bool turned;
};

__host__ __device__ inline int64_t pairs_of(const Rotary& op) { return op.pairs > 0 ? op.pairs : op.head_dim / 2; }

// Pair `item` of a token. Behind those that turn the rest of a head is paired in halves, too; a head of odd size has
// its last column in a pair with itself.
template <class T>
__device__ __forceinline__ Pairs<T> pairs_at(const Rotary& op, int64_t item, int64_t per_head, int width) {
  const int64_t head = item / per_head, half = op.head_dim / 2, i = (item - head * per_head) * width;
  const int64_t pairs = op.cos ? pairs_of(op) : half;
  const int64_t low = i < pairs ? i : i < half ? pairs + i : op.head_dim - 1;
  const int64_t high = i < pairs ? pairs + i : i < half ? half + i : low;
  const bool is_q = head < op.heads, is_k = !is_q && head < op.heads + op.groups;
  const int64_t first_head = is_q ? 0 : is_k ? op.heads : op.heads + op.groups;
  T* part = static_cast<T*>(is_q ? op.q : is_k ? op.k : op.v);
  return {head * op.head_dim + low,
          head * op.head_dim + high,
          i,
          (is_q ? op.heads : op.groups) * op.head_dim,
          part + (head - first_head) * op.head_dim + low,
          op.cos && (is_q || is_k) && i < pairs};
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

}  // namespace
}  // namespace drivetrain::kernels
