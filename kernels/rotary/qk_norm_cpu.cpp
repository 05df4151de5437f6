// Norms of queries and keys with rotary embedding on the CPU: a few heads at a time, their mean squares and what
// becomes of them in two passes over their float32 numbers. Loops carry `ivdep` as outputs are never inputs.
#include "kernels/rotary/qk_norm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/common/lanes.h"
#include "kernels/rotary/heads.h"

namespace drivetrain::kernels {
namespace {

constexpr int64_t kMostColumns = 512;  // of a head, whose numbers stand on the stack
constexpr int64_t kTogether = 4;       // heads

struct NormedHead {
  const void *x, *bias, *from;  // bias null: none; from: backward's gradient of what forward made
  const float* gain;            // offset + weight
  const float *cos, *sin;       // null: no turn
  void* to;
  float* dweight;
  int64_t columns, pairs;  // pairs 0: no turn
  float epsilon;
  Dtype dtype;
};

// The numbers of x + bias in float32: x itself where these are what lies there, or else `room`.
DRIVETRAIN_INLINE const float* numbers_of(const NormedHead& head, const void* x, const void* bias, float* room) {
  if (head.dtype == Dtype::f32 && !bias) return static_cast<const float*>(x);
  widen(head.dtype, x, bias, room, head.columns);
  return room;
}

// Where the result is computed: in its memory, or in `room` until it is narrowed.
DRIVETRAIN_INLINE float* place_of(const NormedHead& head, float* room) {
  return head.dtype == Dtype::f32 ? static_cast<float*>(head.to) : room;
}

DRIVETRAIN_INLINE void store(const NormedHead& head, const float* numbers) {
  if (head.dtype != Dtype::f32) narrow(head.dtype, numbers, head.to, head.columns);
}

// What is known of a head before it is written: its numbers, and 1 over their root mean square.
struct Known {
  const float* in;
  float square, rstd;
};

// The heads of one call do not wait for each other's sums and roots.
DRIVETRAIN_VECTOR_CLONES void forward_heads(const NormedHead* heads, int64_t count) {
  float in_room[kTogether][kMostColumns], room[kMostColumns];
  Known known[kTogether];
  for (int64_t h = 0; h < count; ++h) {
    const float* const in = known[h].in = numbers_of(heads[h], heads[h].x, heads[h].bias, in_room[h]);
    known[h].square = sum_lanes(heads[h].columns, [=](int64_t i) { return in[i] * in[i]; });
  }
  for (int64_t h = 0; h < count; ++h)
    known[h].rstd = 1.0F / std::sqrt(known[h].square / static_cast<float>(heads[h].columns) + heads[h].epsilon);
  for (int64_t h = 0; h < count; ++h) {
    const NormedHead& head = heads[h];
    const int64_t n = head.columns, pairs = head.pairs;
    const float *const cos = head.cos, *const sin = head.sin, *const gain = head.gain, *const in = known[h].in;
    const float rstd = known[h].rstd;
    float* const to = place_of(head, room);
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
}

// g: the gradient turned back, times offset + weight; dx = rstd (g - x rstd^2 mean(g x)).
DRIVETRAIN_VECTOR_CLONES void backward_heads(const NormedHead* heads, int64_t count) {
  float in_room[kTogether][kMostColumns], dy_room[kTogether][kMostColumns], from_room[kMostColumns], room[kMostColumns];
  Known known[kTogether];
  float along[kTogether];
  for (int64_t h = 0; h < count; ++h) {
    const NormedHead& head = heads[h];
    const int64_t n = head.columns, pairs = head.pairs;
    const float *const cos = head.cos, *const sin = head.sin, *const gain = head.gain;
    const float* const in = known[h].in = numbers_of(head, head.x, head.bias, in_room[h]);
    const float* const from = numbers_of(head, head.from, nullptr, from_room);
    float* const dy = dy_room[h];
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
    known[h].square = fold_lanes(squares), along[h] = fold_lanes(products);
  }
  for (int64_t h = 0; h < count; ++h) {
    const auto n = static_cast<float>(heads[h].columns);
    known[h].rstd = 1.0F / std::sqrt(known[h].square / n + heads[h].epsilon);
    along[h] = along[h] * known[h].rstd * known[h].rstd / n;
  }
  for (int64_t h = 0; h < count; ++h) {
    const NormedHead& head = heads[h];
    const float *const in = known[h].in, *const dy = dy_room[h], *const gain = head.gain;
    const float rstd = known[h].rstd, mean = along[h];
    float *const to = place_of(head, room), *const dweight = head.dweight;
#pragma GCC ivdep
    for (int64_t i = 0; i < head.columns; ++i) {
      dweight[i] = multiply_add(dy[i], in[i] * rstd, dweight[i]);
      to[i] = rstd * multiply_add(-in[i], mean, dy[i] * gain[i]);
    }
    store(head, to);
  }
}

// Calls heads(list, number) for `count` heads, a few at a time, of which `head` is the first: the others lie behind it.
void by_few(int64_t count, void (*heads)(const NormedHead*, int64_t), const NormedHead& head) {
  NormedHead list[kTogether];
  for (int64_t h = 0; h < kTogether; ++h) list[h] = head;
  for (int64_t first = 0; first < count; first += kTogether) {
    const int64_t number = std::min(kTogether, count - first);
    for (int64_t h = 0; h < number; ++h) {
      list[h].x = row_of(head.x, first + h, head.columns, head.dtype);
      list[h].bias = row_of(head.bias, first + h, head.columns, head.dtype);
      list[h].from = row_of(head.from, first + h, head.columns, head.dtype);
      list[h].to = row_of(head.to, first + h, head.columns, head.dtype);
    }
    heads(list, number);
  }
}

// offset + weight of all heads, in float32.
struct Gains {
  explicit Gains(const QkNormRotary& op) {
    const Rotary& r = op.rotary;
    for (const auto& [weight, gain] : {std::pair{op.q_weight, q}, {op.k_weight, k}}) {
      widen(r.dtype, weight, nullptr, gain, r.head_dim);
      for (int64_t i = 0; i < r.head_dim; ++i) gain[i] += op.offset;
    }
  }
  const float* of(Part which) const { return which == Part::q ? q : k; }
  float q[kMostColumns], k[kMostColumns];
};

// The norm of the first of the heads that begin at column `start` of qkv.
NormedHead first_head(const QkNormRotary& op, const void* qkv, int64_t start, const float* gain, const float* cos,
                      const float* sin) {
  const Rotary& r = op.rotary;
  NormedHead head{};
  head.x = row_of(qkv, start, 1, r.dtype), head.gain = gain;
  head.bias = row_of(r.bias, start % ((r.heads + 2 * r.groups) * r.head_dim), 1, r.dtype);
  head.cos = cos, head.sin = sin, head.columns = r.head_dim, head.pairs = cos ? pairs_of(r) : 0;
  head.epsilon = op.epsilon, head.dtype = r.dtype;
  return head;
}

}  // namespace

bool qk_norm_fits_cpu(const QkNormRotary& op) { return op.rotary.head_dim <= kMostColumns; }

void qk_norm_forward_cpu(const QkNormRotary& op, int64_t token_begin, int64_t token_end) {
  const Rotary& r = op.rotary;
  const int64_t C = r.head_dim, width = (r.heads + 2 * r.groups) * C;
  const Gains gains(op);
  for_tokens(r, token_begin, token_end,
             [&](int64_t start, Part which, void* part, int64_t count, const float* cos, const float* sin) {
               if (which == Part::v)
                 return move_heads({row_of(static_cast<const void*>(r.qkv), start, 1, r.dtype),
                                    row_of(r.bias, start % width, 1, r.dtype), nullptr, nullptr, part, count, C, 0,
                                    1.0F, r.dtype});
               NormedHead head = first_head(op, r.qkv, start, gains.of(which), cos, sin);
               head.to = part;
               by_few(count, forward_heads, head);
             });
}

void qk_norm_backward_cpu(const QkNormRotary& op, int64_t block_begin, int64_t block_end) {
  const Rotary& r = op.rotary;
  const int64_t C = r.head_dim;
  const Gains gains(op);
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
                 NormedHead head = first_head(op, op.x, start, gains.of(which), cos, sin);
                 head.from = part, head.to = row_of(r.qkv, start, 1, r.dtype);
                 head.dweight = which == Part::q ? dq : dk;
                 by_few(count, backward_heads, head);
               });
  }
}

}  // namespace drivetrain::kernels
