// Rotary embedding on the CPU: a token at a time, its heads split out of qkv and turned on the way, or put back.
#include "kernels/rotary/rotary.h"

#include "kernels/common/vector_math.h"

namespace drivetrain::kernels {
namespace {

// (a, b) turned by the angle of each pair; `sign` -1 turns back.
template <bool kBias>
DRIVETRAIN_INLINE void turn_head(const float* from, const float* bias, float* to, const float* cos, const float* sin,
                                 float sign, int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float a = kBias ? from[i] + bias[i] : from[i];
    const float b = kBias ? from[half + i] + bias[half + i] : from[half + i];
    const float s = sign * sin[i];
    to[i] = multiply_add(a, cos[i], -(b * s));
    to[half + i] = multiply_add(b, cos[i], a * s);
  }
}

template <bool kBias>
DRIVETRAIN_INLINE void copy(const float* from, const float* bias, float* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = kBias ? from[i] + bias[i] : from[i];
}

// Consecutive heads of one token, both ways.
struct Heads {
  const float *from, *bias, *cos, *sin;  // bias null: none; cos null: no turn
  float* to;
  int64_t count, head_dim;
  float sign;
};

template <bool kBias>
DRIVETRAIN_INLINE void heads_of(const Heads& heads) {
  const int64_t width = heads.head_dim, half = width / 2;
  if (!heads.cos) return copy<kBias>(heads.from, heads.bias, heads.to, heads.count * width);
  for (int64_t head = 0; head < heads.count; ++head) {
    const float* bias = kBias ? heads.bias + head * width : nullptr;
    turn_head<kBias>(heads.from + head * width, bias, heads.to + head * width, heads.cos, heads.sin, heads.sign, half);
  }
}

DRIVETRAIN_VECTOR_CLONES void move_heads(const Heads& heads) {
  heads.bias ? heads_of<true>(heads) : heads_of<false>(heads);
}

template <class Move>
void for_tokens(const Rotary& op, int64_t begin, int64_t end, Move move) {
  const int64_t q_width = op.heads * op.head_dim, kv_width = op.groups * op.head_dim;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t angle = token % op.sequence * (op.head_dim / 2);
    const float* cos = op.cos ? op.cos + angle : nullptr;
    const float* sin = op.sin ? op.sin + angle : nullptr;
    const int64_t start = token * (q_width + 2 * kv_width);
    move(start, static_cast<float*>(op.q) + token * q_width, op.heads, cos, sin);
    move(start + q_width, static_cast<float*>(op.k) + token * kv_width, op.groups, cos, sin);
    move(start + q_width + kv_width, static_cast<float*>(op.v) + token * kv_width, op.groups, nullptr, nullptr);
  }
}

}  // namespace

void rotary_forward_cpu(const Rotary& op, int64_t token_begin, int64_t token_end) {
  const float* qkv = static_cast<const float*>(op.qkv);
  const int64_t width = (op.heads + 2 * op.groups) * op.head_dim;
  auto split = [&](int64_t start, float* part, int64_t count, const float* cos, const float* sin) {
    const float* bias = op.bias ? static_cast<const float*>(op.bias) + start % width : nullptr;
    move_heads({qkv + start, bias, cos, sin, part, count, op.head_dim, 1.0F});
  };
  for_tokens(op, token_begin, token_end, split);
}

void rotary_backward_cpu(const Rotary& op, int64_t token_begin, int64_t token_end) {
  float* qkv = static_cast<float*>(op.qkv);
  auto join = [&](int64_t start, const float* part, int64_t count, const float* cos, const float* sin) {
    move_heads({part, nullptr, cos, sin, qkv + start, count, op.head_dim, -1.0F});
  };
  for_tokens(op, token_begin, token_end, join);
}

}  // namespace drivetrain::kernels
