// A matrix product with few rows, as of a text that grows token by token: every weight is read once and used for a
// handful of multiplications, so it goes as fast as memory does. Nothing is packed or copied.
// An element of C is a sum in float32 whose order depends on K alone (common/lanes.h): the same in every number of rows
// and threads, and in every vector width.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

// With more rows packing pays.
inline constexpr int64_t kFewRows = 7;

struct FewRowsProduct {
  const void* a = nullptr;     // [M, K], dense
  const void* b = nullptr;     // [N, K]: the weight as it is stored
  int64_t b_stride = 0;        // elements between its rows
  const void* bias = nullptr;  // [N], or null
  void* c = nullptr;           // [M, N], dense
  int64_t m = 0, n = 0, k = 0;
  Dtype dtype = Dtype::f32;  // of all
};

// Columns [begin, end) of C = A B^T + bias.
DRIVETRAIN_KERNEL void few_rows_product_cpu(const FewRowsProduct&, int64_t begin, int64_t end);

}  // namespace drivetrain::kernels
