// Products of a group's rows on this thread by kernels/product/group.h, for tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace drivetrain {

// Whether products of operands of this type on the CPU go there.
bool multiplies_groups(at::ScalarType type);
// Columns of a block that a thread computes, where so many groups have rows. No bits depend on it.
int64_t group_columns(int64_t groups);

// Rows of dense elements as they are stored: those that `index` names, or, without it, the first `rows`. They are the
// rows of an operand, or its columns (`transposed`).
struct StoredRows {
  at::Tensor x;
  const int64_t* index = nullptr;
  int64_t rows = 0;
  bool transposed = false;
};
// c [M, N] := or += a [M, K] b [K, N] in sums of float32; K is at least 1. `stream`: nobody reads c soon.
void group_product(const at::Tensor& c, bool add, bool stream, const StoredRows& a, const StoredRows& b);

}  // namespace drivetrain
