// Backward of the word embedding: dW[ids[n]] += dy[n].
// Rows that share an id are added in order of position: fixed bits.
// Legend: N tokens, V vocabulary, D columns.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

struct EmbeddingBackward {
  const void* dy = nullptr;      // [N, D], of `dtype`
  const int64_t* ids = nullptr;  // [N]; outside [0, V): skipped
  float* dweight = nullptr;      // [V, D], added to
  int64_t tokens = 0, vocabulary = 0, columns = 0;
  Dtype dtype = Dtype::f32;
  // CUDA only: tokens sorted by (id, position), as a stable sort gives them:
  // order [N] are positions, sorted_ids [N] their ids.
  const int64_t *order = nullptr, *sorted_ids = nullptr;
};
DRIVETRAIN_KERNEL void embedding_backward_cpu(const EmbeddingBackward&, int64_t column_begin, int64_t column_end);
DRIVETRAIN_KERNEL int embedding_backward_cuda(const EmbeddingBackward&, void* stream);

}  // namespace drivetrain::kernels
