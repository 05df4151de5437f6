// Embedding backward on the CPU: threads share the columns, so that every row is added in order of position whatever
// their number. 8 bytes moved per element of dy, and dy.
#include "kernels/embedding/embedding.h"

#include "kernels/common/narrow.h"

namespace drivetrain::kernels {
namespace {

template <class T>
DRIVETRAIN_INLINE void add_elements(float* __restrict to, const T* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += widened(from[i]);
}

DRIVETRAIN_VECTOR_CLONES void add(float* to, const void* from, int64_t first, int64_t n, Dtype dtype) {
  with_elements(
      dtype, [&]<class T>(T)
                 __attribute__((always_inline)) { add_elements(to + first, static_cast<const T*>(from) + first, n); });
}

}  // namespace

void embedding_backward_cpu(const EmbeddingBackward& op, int64_t column_begin, int64_t column_end) {
  for (int64_t n = 0; n < op.tokens; ++n) {
    const int64_t id = op.ids[n];
    if (id < 0 || id >= op.vocabulary) continue;
    add(op.dweight + id * op.columns, row_of(op.dy, n, op.columns, op.dtype), column_begin, column_end - column_begin,
        op.dtype);
  }
}

}  // namespace drivetrain::kernels
