// The heads of one token on the CPU: split out of qkv and turned on the way, or put back. Source files of
// kernels/rotary include it, each for itself.
#pragma once

#include "kernels/common/narrow.h"
#include "kernels/common/vector_math.h"
#include "kernels/rotary/rotary.h"

namespace drivetrain::kernels {
namespace {

// (a, b) turned by the angle of each pair; `sign` -1 turns back.
template <bool kBias, class T>
DRIVETRAIN_INLINE void turn_head(const T* from, const T* bias, T* to, const float* cos, const float* sin, float sign,
                                 int64_t pairs) {
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = kBias ? widened(from[i]) + widened(bias[i]) : widened(from[i]);
    const float b = kBias ? widened(from[pairs + i]) + widened(bias[pairs + i]) : widened(from[pairs + i]);
    const float s = sign * sin[i];
    to[i] = narrowed<T>(multiply_add(a, cos[i], -(b * s)));
    to[pairs + i] = narrowed<T>(multiply_add(b, cos[i], a * s));
  }
}

template <bool kBias, class T>
DRIVETRAIN_INLINE void copy(const T* from, const T* bias, T* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = kBias ? narrowed<T>(widened(from[i]) + widened(bias[i])) : from[i];
}

// Consecutive heads of one token, both ways.
struct Heads {
  const void *from, *bias;  // bias null: none
  const float *cos, *sin;   // cos null: no turn
  void* to;
  int64_t count, head_dim, pairs;
  float sign;
  Dtype dtype;
};

template <bool kBias, class T>
DRIVETRAIN_INLINE void heads_of(const Heads& heads) {
  const int64_t width = heads.head_dim, pairs = heads.pairs, turned = 2 * pairs;
  const T *from = static_cast<const T*>(heads.from), *all_bias = static_cast<const T*>(heads.bias);
  T* const to = static_cast<T*>(heads.to);
  if (!heads.cos) return copy<kBias>(from, all_bias, to, heads.count * width);
  for (int64_t head = 0; head < heads.count; ++head) {
    const T* bias = kBias ? all_bias + head * width : nullptr;
    turn_head<kBias>(from + head * width, bias, to + head * width, heads.cos, heads.sin, heads.sign, pairs);
    if (turned < width)
      copy<kBias>(from + head * width + turned, kBias ? bias + turned : nullptr, to + head * width + turned,
                  width - turned);
  }
}

DRIVETRAIN_VECTOR_CLONES void move_heads(const Heads& heads) {
  with_elements(
      heads.dtype, [&]<class T>(T) __attribute__((always_inline)) {
        heads.bias ? heads_of<true, T>(heads) : heads_of<false, T>(heads);
      });
}

inline int64_t pairs_of(const Rotary& op) { return op.pairs > 0 ? op.pairs : op.head_dim / 2; }

enum class Part { q, k, v };

// Calls move(first column in qkv, which part, heads of the part, how many, cos, sin) for q, k and v of each token.
template <class Move>
void for_tokens(const Rotary& op, int64_t begin, int64_t end, Move move) {
  const int64_t q_width = op.heads * op.head_dim, kv_width = op.groups * op.head_dim;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t angle = token % op.sequence * pairs_of(op);
    const float* cos = op.cos ? op.cos + angle : nullptr;
    const float* sin = op.sin ? op.sin + angle : nullptr;
    const int64_t start = token * (q_width + 2 * kv_width);
    move(start, Part::q, row_of(op.q, token, q_width, op.dtype), op.heads, cos, sin);
    move(start + q_width, Part::k, row_of(op.k, token, kv_width, op.dtype), op.groups, cos, sin);
    move(start + q_width + kv_width, Part::v, row_of(op.v, token, kv_width, op.dtype), op.groups, nullptr, nullptr);
  }
}

}  // namespace
}  // namespace drivetrain::kernels
