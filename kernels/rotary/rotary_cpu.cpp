// Rotary embedding on the CPU: a token at a time, its heads split out of qkv and turned on the way, or put back.
#include "kernels/rotary/rotary.h"

#include "kernels/common/narrow.h"
#include "kernels/common/vector_math.h"

namespace drivetrain::kernels {
namespace {

// (a, b) turned by the angle of each pair; `sign` -1 turns back.
template <bool kBias, class T>
DRIVETRAIN_INLINE void turn_head(const T* from, const T* bias, T* to, const float* cos, const float* sin, float sign,
                                 int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float a = kBias ? widened(from[i]) + widened(bias[i]) : widened(from[i]);
    const float b = kBias ? widened(from[half + i]) + widened(bias[half + i]) : widened(from[half + i]);
    const float s = sign * sin[i];
    to[i] = narrowed<T>(multiply_add(a, cos[i], -(b * s)));
    to[half + i] = narrowed<T>(multiply_add(b, cos[i], a * s));
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
  int64_t count, head_dim;
  float sign;
  Dtype dtype;
};

template <bool kBias, class T>
DRIVETRAIN_INLINE void heads_of(const Heads& heads) {
  const int64_t width = heads.head_dim, half = width / 2;
  const T *from = static_cast<const T*>(heads.from), *all_bias = static_cast<const T*>(heads.bias);
  T* const to = static_cast<T*>(heads.to);
  if (!heads.cos) return copy<kBias>(from, all_bias, to, heads.count * width);
  for (int64_t head = 0; head < heads.count; ++head) {
    const T* bias = kBias ? all_bias + head * width : nullptr;
    turn_head<kBias>(from + head * width, bias, to + head * width, heads.cos, heads.sin, heads.sign, half);
  }
}

DRIVETRAIN_VECTOR_CLONES void move_heads(const Heads& heads) {
  with_elements(
      heads.dtype, [&]<class T>(T) __attribute__((always_inline)) {
        heads.bias ? heads_of<true, T>(heads) : heads_of<false, T>(heads);
      });
}

// Calls move(first column in qkv, heads of the part, how many, cos, sin) for q, k and v of each token.
template <class Move>
void for_tokens(const Rotary& op, int64_t begin, int64_t end, Move move) {
  const int64_t q_width = op.heads * op.head_dim, kv_width = op.groups * op.head_dim;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t angle = token % op.sequence * (op.head_dim / 2);
    const float* cos = op.cos ? op.cos + angle : nullptr;
    const float* sin = op.sin ? op.sin + angle : nullptr;
    const int64_t start = token * (q_width + 2 * kv_width);
    move(start, row_of(op.q, token, q_width, op.dtype), op.heads, cos, sin);
    move(start + q_width, row_of(op.k, token, kv_width, op.dtype), op.groups, cos, sin);
    move(start + q_width + kv_width, row_of(op.v, token, kv_width, op.dtype), op.groups, nullptr, nullptr);
  }
}

}  // namespace

void rotary_forward_cpu(const Rotary& op, int64_t token_begin, int64_t token_end) {
  const int64_t width = (op.heads + 2 * op.groups) * op.head_dim;
  auto split = [&](int64_t start, void* part, int64_t count, const float* cos, const float* sin) {
    const void* const qkv = row_of(static_cast<const void*>(op.qkv), start, 1, op.dtype);
    move_heads({qkv, row_of(op.bias, start % width, 1, op.dtype), cos, sin, part, count, op.head_dim, 1.0F, op.dtype});
  };
  for_tokens(op, token_begin, token_end, split);
}

void rotary_backward_cpu(const Rotary& op, int64_t token_begin, int64_t token_end) {
  auto join = [&](int64_t start, void* part, int64_t count, const float* cos, const float* sin) {
    move_heads({part, nullptr, cos, sin, row_of(op.qkv, start, 1, op.dtype), count, op.head_dim, -1.0F, op.dtype});
  };
  for_tokens(op, token_begin, token_end, join);
}

}  // namespace drivetrain::kernels
