// Sums over ranks on the CPU: every source is read once, a block of every open level of the tree stays in the first
// cache.
#include "kernels/collective/tree_sum.h"

#include <cstring>
#include <type_traits>

#include "kernels/common/narrow.h"

#define TREE_LOOP _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i)

namespace drivetrain::kernels {
namespace {

constexpr int64_t kTreeBlock = 512;  // elements
constexpr int kTreeLevels = 17;      // of kMostSummands

template <class T>
DRIVETRAIN_INLINE T wide_of(T x) {
  return x;
}
DRIVETRAIN_INLINE float wide_of(Bf16 x) { return widened(x); }
DRIVETRAIN_INLINE float wide_of(F16 x) { return widened(x); }

template <class T, class A>
DRIVETRAIN_INLINE void store(T* out, const A* sum, int64_t n) {
  if constexpr (std::is_same_v<T, Bf16>)
    TREE_LOOP out[i].bits = to_bf16(sum[i]);
  else if constexpr (std::is_same_v<T, F16>)
    TREE_LOOP out[i].bits = to_f16(sum[i]);
  else
    memcpy(out, sum, static_cast<size_t>(n) * sizeof(T));
}

// Sums that are complete so far, the oldest and largest first, as a binary counter holds them: two of one size become
// one.
template <class T, class A>
DRIVETRAIN_INLINE void block(const TreeSum& op, int64_t at, int64_t n) {
  alignas(64) A open[kTreeLevels][kTreeBlock];
  int depth = 0;
  const auto source = [&](int64_t rank) { return static_cast<const T*>(op.sources[rank]) + at; };
  const auto join = [&] {
    --depth;
    A *const left = open[depth - 1], *const right = open[depth];
    TREE_LOOP left[i] = static_cast<A>(left[i] + right[i]);
  };
  for (int64_t rank = 0; rank + 1 < op.ranks; rank += 2) {
    A* const sum = open[depth++];
    const T *const a = source(rank), *const b = source(rank + 1);
    TREE_LOOP sum[i] = static_cast<A>(wide_of(a[i]) + wide_of(b[i]));
    for (int64_t pairs = rank / 2 + 1; pairs % 2 == 0; pairs /= 2) join();
  }
  if (op.ranks % 2 == 1) {
    A* const sum = open[depth++];
    const T* const a = source(op.ranks - 1);
    TREE_LOOP sum[i] = wide_of(a[i]);
  }
  while (depth > 1) join();
  store(static_cast<T*>(op.out) + at, open[0], n);
  if (op.also != nullptr) store(static_cast<T*>(op.also) + at, open[0], n);
}

// Nothing to hold between levels.
template <class T>
DRIVETRAIN_INLINE void pair_between(const TreeSum& op, int64_t begin, int64_t n) {
  const T* const a = static_cast<const T*>(op.sources[0]) + begin;
  const T* const b = static_cast<const T*>(op.sources[1]) + begin;
  T* const out = static_cast<T*>(op.out) + begin;
  if (op.also == nullptr) {
    TREE_LOOP out[i] = static_cast<T>(a[i] + b[i]);
  } else {
    T* const also = static_cast<T*>(op.also) + begin;
    TREE_LOOP out[i] = also[i] = static_cast<T>(a[i] + b[i]);
  }
}

template <class T, class A>
DRIVETRAIN_INLINE void blocks_between(const TreeSum& op, int64_t begin, int64_t end) {
  if constexpr (std::is_same_v<T, A>) {
    if (op.ranks == 2) return pair_between<T>(op, begin, end - begin);
  }
  for (int64_t at = begin; at < end; at += kTreeBlock)
    block<T, A>(op, at, end - at < kTreeBlock ? end - at : kTreeBlock);
}

// Not templates, because target_clones does not go with them.
#define TREE_RANGE(NAME, T, A)                                                        \
  DRIVETRAIN_VECTOR_CLONES void NAME(const TreeSum& op, int64_t begin, int64_t end) { \
    blocks_between<T, A>(op, begin, end);                                             \
  }
TREE_RANGE(tree_f32, float, float)
TREE_RANGE(tree_f64, double, double)
TREE_RANGE(tree_bf16, Bf16, float)
TREE_RANGE(tree_f16, F16, float)
TREE_RANGE(tree_i8, uint8_t, uint8_t)  // two's complement: signed integers are added as unsigned ones
TREE_RANGE(tree_i16, uint16_t, uint16_t)
TREE_RANGE(tree_i32, uint32_t, uint32_t)
TREE_RANGE(tree_i64, uint64_t, uint64_t)

}  // namespace

void tree_sum_cpu(const TreeSum& op, int64_t begin, int64_t end) {
  switch (op.type) {
    case SumType::f32:
      return tree_f32(op, begin, end);
    case SumType::f64:
      return tree_f64(op, begin, end);
    case SumType::bf16:
      return tree_bf16(op, begin, end);
    case SumType::f16:
      return tree_f16(op, begin, end);
    case SumType::i8:
      return tree_i8(op, begin, end);
    case SumType::i16:
      return tree_i16(op, begin, end);
    case SumType::i32:
      return tree_i32(op, begin, end);
    case SumType::i64:
      return tree_i64(op, begin, end);
  }
}

}  // namespace drivetrain::kernels
