// Embedding backward on the CPU: threads share the columns, so that every row is added in order of position whatever
// their number. 12 bytes moved per element of dy.
#include "kernels/embedding/embedding.h"

#include "kernels/common/vector_clones.h"

namespace drivetrain::kernels {
namespace {

DRIVETRAIN_VECTOR_CLONES void add(float* __restrict to, const float* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

void embedding_backward_cpu(const EmbeddingBackward& op, int64_t column_begin, int64_t column_end) {
  const float* dy = static_cast<const float*>(op.dy);
  for (int64_t n = 0; n < op.tokens; ++n) {
    const int64_t id = op.ids[n];
    if (id < 0 || id >= op.vocabulary) continue;
    add(op.dweight + id * op.columns + column_begin, dy + n * op.columns + column_begin, column_end - column_begin);
  }
}

}  // namespace drivetrain::kernels
