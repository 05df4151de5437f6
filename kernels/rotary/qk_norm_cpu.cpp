// Norms of queries and keys with rotary embedding on the CPU: a head at a time, its mean square and what becomes of it
// in two passes over its float32 numbers. Loops carry `ivdep` as outputs are never inputs.
#include "kernels/rotary/qk_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/lanes.h"
#include "kernels/rotary/heads.h"

namespace drivetrain::kernels {
namespace {

constexpr int64_t kMostColumns = 512;  // of a head, whose gradient stands on the stack

struct NormedHead {
  const void *x, *bias, *weight, *from;  // bias null: none; from: backward's gradient of what forward made
  const float *cos, *sin;                // null: no turn
  void* to;
  float* dweight;
  int64_t columns, pairs;  // pairs 0: no turn
  float epsilon, offset;
  Dtype dtype;
};

// The numbers of x + bias in float32: x itself where these are what lies there, or else `room`.
DRIVETRAIN_INLINE const float* numbers_of(const NormedHead& head, const void* x, const void* bias, float* room) {
  if (head.dtype == Dtype::f32 && !bias) return static_cast<const float*>(x);
  widen(head.dtype, x, bias, room, head.columns);
  return room;
}

// offset + weight
DRIVETRAIN_INLINE const float* gains_of(const NormedHead& head, float* room) {
  const float* const weight = numbers_of(head, head.weight, nullptr, room);
  if (head.offset == 0) return weight;
  for (int64_t i = 0; i < head.columns; ++i) room[i] = head.offset + weight[i];
  return room;
}

// Where the result is computed: in its memory, or in `room` until it is narrowed.
DRIVETRAIN_INLINE float* place_of(const NormedHead& head, float* room) {
  return head.dtype == Dtype::f32 ? static_cast<float*>(head.to) : room;
}

DRIVETRAIN_INLINE void store(const NormedHead& head, const float* numbers) {
  if (head.dtype != Dtype::f32) narrow(head.dtype, numbers, head.to, head.columns);
}

DRIVETRAIN_VECTOR_CLONES void forward_head(const NormedHead& head) {
  const int64_t n = head.columns, pairs = head.pairs;
  const float *cos = head.cos, *sin = head.sin;
  float in_room[kMostColumns], gain_room[kMostColumns], room[kMostColumns];
  const float* const in = numbers_of(head, head.x, head.bias, in_room);
  const float* const gain = gains_of(head, gain_room);
  float* const to = place_of(head, room);
  const float square = sum_lanes(n, [=](int64_t i) { return in[i] * in[i]; });
  const float rstd = 1.0F / std::sqrt(square / static_cast<float>(n) + head.epsilon);
  const auto y = [=](int64_t i) __attribute__((always_inline)) { return in[i] * rstd * gain[i]; };
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = y(i), b = y(pairs + i);
    to[i] = multiply_add(a, cos[i], -(b * sin[i]));
    to[pairs + i] = multiply_add(b, cos[i], a * sin[i]);
  }
#pragma GCC ivdep
  for (int64_t i = 2 * pairs; i < n; ++i) to[i] = y(i);
  store(head, to);
}

// g: the gradient turned back, times offset + weight; dx = rstd (g - x rstd^2 mean(g x)).
DRIVETRAIN_VECTOR_CLONES void backward_head(const NormedHead& head) {
  const int64_t n = head.columns, pairs = head.pairs;
  const float *cos = head.cos, *sin = head.sin;
  float in_room[kMostColumns], gain_room[kMostColumns], from_room[kMostColumns], dy[kMostColumns], room[kMostColumns];
  const float* const in = numbers_of(head, head.x, head.bias, in_room);
  const float* const gain = gains_of(head, gain_room);
  const float* const from = numbers_of(head, head.from, nullptr, from_room);
  float *const to = place_of(head, room), *const dweight = head.dweight;
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = from[i], b = from[pairs + i];
    dy[i] = multiply_add(a, cos[i], b * sin[i]);
    dy[pairs + i] = multiply_add(b, cos[i], -(a * sin[i]));
  }
  for (int64_t i = 2 * pairs; i < n; ++i) dy[i] = from[i];
  float squares[kLanes] = {}, products[kLanes] = {};
  for_lanes(n, [&](int64_t i, int64_t lane) {
    squares[lane] += in[i] * in[i];
    products[lane] = multiply_add(dy[i] * gain[i], in[i], products[lane]);
  });
  const auto count = static_cast<float>(n);
  const float rstd = 1.0F / std::sqrt(fold_lanes(squares) / count + head.epsilon);
  const float along = fold_lanes(products) * rstd * rstd / count;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    dweight[i] = multiply_add(dy[i], in[i] * rstd, dweight[i]);
    to[i] = rstd * multiply_add(-in[i], along, dy[i] * gain[i]);
  }
  store(head, to);
}

// The norm of head `index` of those that begin at column `start` of qkv, and lie at `part` after the split.
NormedHead head_of(const QkNormRotary& op, const void* qkv, int64_t start, int64_t index, const void* weight,
                   const float* cos, const float* sin) {
  const Rotary& r = op.rotary;
  const int64_t C = r.head_dim, width = (r.heads + 2 * r.groups) * C, at = start + index * C;
  NormedHead head{};
  head.x = row_of(qkv, at, 1, r.dtype), head.bias = row_of(r.bias, at % width, 1, r.dtype), head.weight = weight;
  head.cos = cos, head.sin = sin, head.columns = C, head.pairs = cos ? pairs_of(r) : 0;
  head.epsilon = op.epsilon, head.offset = op.offset, head.dtype = r.dtype;
  return head;
}

}  // namespace

bool qk_norm_fits_cpu(const QkNormRotary& op) { return op.rotary.head_dim <= kMostColumns; }

void qk_norm_forward_cpu(const QkNormRotary& op, int64_t token_begin, int64_t token_end) {
  const Rotary& r = op.rotary;
  const int64_t C = r.head_dim, width = (r.heads + 2 * r.groups) * C;
  for_tokens(r, token_begin, token_end,
             [&](int64_t start, Part which, void* part, int64_t count, const float* cos, const float* sin) {
               if (which == Part::v)
                 return move_heads({row_of(static_cast<const void*>(r.qkv), start, 1, r.dtype),
                                    row_of(r.bias, start % width, 1, r.dtype), nullptr, nullptr, part, count, C, 0,
                                    1.0F, r.dtype});
               for (int64_t index = 0; index < count; ++index) {
                 NormedHead head =
                     head_of(op, r.qkv, start, index, which == Part::q ? op.q_weight : op.k_weight, cos, sin);
                 head.to = row_of(part, index, C, r.dtype);
                 forward_head(head);
               }
             });
}

void qk_norm_backward_cpu(const QkNormRotary& op, int64_t block_begin, int64_t block_end) {
  const Rotary& r = op.rotary;
  const int64_t C = r.head_dim;
  for (int64_t block = block_begin; block < block_end; ++block) {
    float *dq = op.q_partial + block * C, *dk = op.k_partial + block * C;
    std::fill_n(dq, C, 0.0F);
    std::fill_n(dk, C, 0.0F);
    const int64_t end = std::min(r.tokens, (block + 1) * kRotaryRows);
    for_tokens(r, block * kRotaryRows, end,
               [&](int64_t start, Part which, void* part, int64_t count, const float* cos, const float* sin) {
                 if (which == Part::v)
                   return move_heads({part, nullptr, nullptr, nullptr, row_of(r.qkv, start, 1, r.dtype), count, C, 0,
                                      -1.0F, r.dtype});
                 for (int64_t index = 0; index < count; ++index) {
                   NormedHead head =
                       head_of(op, op.x, start, index, which == Part::q ? op.q_weight : op.k_weight, cos, sin);
                   head.from = row_of(part, index, C, r.dtype), head.to = row_of(r.qkv, start + index * C, 1, r.dtype);
                   head.dweight = which == Part::q ? dq : dk;
                   backward_head(head);
                 }
               });
  }
}

}  // namespace drivetrain::kernels
