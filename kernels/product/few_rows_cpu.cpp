#include "kernels/product/few_rows.h"

#include "kernels/common/lanes.h"
#include "kernels/common/narrow.h"

namespace drivetrain::kernels {
namespace {

// Weights come from memory, and a processor's own prefetching stops at the end of every page: what is read this many
// bytes later is asked for here, be it of the next column. Into the outer caches: the first one of a Xeon waits for few
// lines at a time (half as fast).
constexpr int64_t kAhead = 2048;
constexpr int64_t kLine = 64;

// Lanes and order of common/lanes.h.
template <class T>
DRIVETRAIN_INLINE float dot(const T* row, const T* column, int64_t n) {
  float lanes[kLanes] = {};
  const auto ahead = [](const T* at, int64_t line) { return reinterpret_cast<const char*>(at) + kAhead + line; };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t line = 0; line < kLanes * static_cast<int64_t>(sizeof(T)); line += kLine)
      __builtin_prefetch(ahead(column + i, line), 0, 1);
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += widened(row[i + j]) * widened(column[i + j]);
  }
  for (int64_t j = 0; i + j < n; ++j) lanes[j] += widened(row[i + j]) * widened(column[i + j]);
  return fold_lanes(lanes);
}

template <class T>
DRIVETRAIN_INLINE void columns_in(const FewRowsProduct& op, int64_t begin, int64_t end) {
  const T *const a = static_cast<const T*>(op.a), *const bias = static_cast<const T*>(op.bias);
  T* const c = static_cast<T*>(op.c);
  for (int64_t j = begin; j < end; ++j) {
    const T* const column = static_cast<const T*>(op.b) + j * op.b_stride;  // stays in the first cache for all rows
    const float add = bias ? widened(bias[j]) : 0.0F;
    for (int64_t i = 0; i < op.m; ++i) {
      c[i * op.n + j] = narrowed<T>(dot(a + i * op.k, column, op.k) + add);
    }
  }
}

DRIVETRAIN_VECTOR_CLONES void columns(const FewRowsProduct& op, int64_t begin, int64_t end) {
  with_elements(
      op.dtype, [&]<class T>(T) __attribute__((always_inline)) { columns_in<T>(op, begin, end); });
}

}  // namespace

void few_rows_product_cpu(const FewRowsProduct& op, int64_t begin, int64_t end) { columns(op, begin, end); }

}  // namespace drivetrain::kernels
