// Norms of queries and keys with rotary embedding on the CPU: a head at a time, its mean square and what becomes of it
// in two passes over the cached head. Loops carry `ivdep` as outputs are never inputs.
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

template <bool kBias, class T>
DRIVETRAIN_INLINE void forward_in(const NormedHead& head) {
  const int64_t n = head.columns, pairs = head.pairs;
  const T *x = static_cast<const T*>(head.x), *bias = static_cast<const T*>(head.bias),
          *weight = static_cast<const T*>(head.weight);
  const float *cos = head.cos, *sin = head.sin, offset = head.offset;
  T* const to = static_cast<T*>(head.to);
  const auto in = [=](int64_t i) __attribute__((always_inline)) {
    return kBias ? widened(x[i]) + widened(bias[i]) : widened(x[i]);
  };
  const float square = sum_lanes(n, [=](int64_t i) { return in(i)*in(i); });
  const float rstd = 1.0F / std::sqrt(square / static_cast<float>(n) + head.epsilon);
  const auto y = [=](int64_t i) __attribute__((always_inline)) { return in(i)*rstd * (offset + widened(weight[i])); };
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = y(i), b = y(pairs + i);
    to[i] = narrowed<T>(multiply_add(a, cos[i], -(b * sin[i])));
    to[pairs + i] = narrowed<T>(multiply_add(b, cos[i], a * sin[i]));
  }
#pragma GCC ivdep
  for (int64_t i = 2 * pairs; i < n; ++i) to[i] = narrowed<T>(y(i));
}

DRIVETRAIN_VECTOR_CLONES void forward_head(const NormedHead& head) {
  with_elements(
      head.dtype, [&]<class T>(T) __attribute__((always_inline)) {
        head.bias ? forward_in<true, T>(head) : forward_in<false, T>(head);
      });
}

// g: the gradient turned back, times offset + weight; dx = rstd (g - x rstd^2 mean(g x)).
template <bool kBias, class T>
DRIVETRAIN_INLINE void backward_in(const NormedHead& head) {
  const int64_t n = head.columns, pairs = head.pairs;
  const T *x = static_cast<const T*>(head.x), *bias = static_cast<const T*>(head.bias),
          *weight = static_cast<const T*>(head.weight), *from = static_cast<const T*>(head.from);
  const float *cos = head.cos, *sin = head.sin, offset = head.offset;
  T* const to = static_cast<T*>(head.to);
  float* const dweight = head.dweight;
  float dy[kMostColumns];
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = widened(from[i]), b = widened(from[pairs + i]);
    dy[i] = multiply_add(a, cos[i], b * sin[i]);
    dy[pairs + i] = multiply_add(b, cos[i], -(a * sin[i]));
  }
  for (int64_t i = 2 * pairs; i < n; ++i) dy[i] = widened(from[i]);
  const auto in = [=](int64_t i) __attribute__((always_inline)) {
    return kBias ? widened(x[i]) + widened(bias[i]) : widened(x[i]);
  };
  float squares[kLanes] = {}, products[kLanes] = {};
  for_lanes(n, [&](int64_t i, int64_t lane) {
    const float value = in(i);
    squares[lane] += value * value;
    products[lane] = multiply_add(dy[i] * (offset + widened(weight[i])), value, products[lane]);
  });
  const auto count = static_cast<float>(n);
  const float rstd = 1.0F / std::sqrt(fold_lanes(squares) / count + head.epsilon);
  const float along = fold_lanes(products) * rstd * rstd / count;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float value = in(i), gradient = dy[i];
    dweight[i] = multiply_add(gradient, value * rstd, dweight[i]);
    to[i] = narrowed<T>(rstd * multiply_add(-value, along, gradient * (offset + widened(weight[i]))));
  }
}

DRIVETRAIN_VECTOR_CLONES void backward_head(const NormedHead& head) {
  with_elements(
      head.dtype, [&]<class T>(T) __attribute__((always_inline)) {
        head.bias ? backward_in<true, T>(head) : backward_in<false, T>(head);
      });
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
