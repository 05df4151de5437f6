#include "kernels/product/few_rows.h"

#include "kernels/common/lanes.h"
#include "kernels/common/narrow.h"

namespace drivetrain::kernels {
namespace {

template <class T>
DRIVETRAIN_INLINE void columns_in(const FewRowsProduct& op, int64_t begin, int64_t end) {
  const T *const a = static_cast<const T*>(op.a), *const bias = static_cast<const T*>(op.bias);
  T* const c = static_cast<T*>(op.c);
  for (int64_t j = begin; j < end; ++j) {
    const T* const column = static_cast<const T*>(op.b) + j * op.b_stride;  // stays in the first cache for all rows
    const float add = bias ? widened(bias[j]) : 0.0F;
    for (int64_t i = 0; i < op.m; ++i) {
      const T* const row = a + i * op.k;
      const float sum = sum_lanes(op.k, [=](int64_t k) { return widened(row[k]) * widened(column[k]); });
      c[i * op.n + j] = narrowed<T>(sum + add);
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
