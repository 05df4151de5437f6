// The product of one group's rows with the group's own weight, as of one expert of a mixture: C = A B with float32
// sums, by AVX2 or AVX512 on one thread, with the same bits. There are few rows and the weight is large, so the weight
// is packed in pieces that stay in the first caches until they have been used, and the next piece is on its way
// meanwhile.
//
// An element of C is a sum over k in an order that depends on K alone: its bits depend neither on the other rows and
// columns nor on who computes them. An operand's rows may lie anywhere (`a_rows`), so nobody has to sort them first.
//
// Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication".
// Legend: M rows and N columns of C, K summands.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

// Whether this processor has AVX2 with fused multiply-adds; AVX512 beside it.
DRIVETRAIN_KERNEL bool multiplies_groups();
DRIVETRAIN_KERNEL bool multiplies_groups_wide();

// So many summands of an element are added to each other before their sum is added to C.
inline constexpr int64_t kGroupSummands = 256;

struct GroupProduct {
  const void* a = nullptr;                             // [M, K], or stored as [K, M]; of `dtype`
  const void* b = nullptr;                             // [K, N], or stored as [N, K]; of `dtype`
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;    // elements between stored rows
  bool a_transposed = false, b_transposed = false;     // stored as [K, M], as [N, K]
  const int64_t *a_rows = nullptr, *b_rows = nullptr;  // where in memory stored row i is; null: it is row i
  void* c = nullptr;                                   // [M, N] of c_dtype
  bool add = false;                                    // C += instead of C =
  bool stream = false;                                 // not read again soon, written past the caches where that can be
  int64_t m = 0, n = 0, k = 0;
  Dtype dtype = Dtype::f32, c_dtype = Dtype::f32;
  bool narrow = false;  // AVX2 also where there is AVX512, for comparisons
};

DRIVETRAIN_KERNEL int64_t group_product_scratch_bytes(const GroupProduct&);
// K is at least 1. `scratch`: aligned to 64.
DRIVETRAIN_KERNEL void group_product_cpu(const GroupProduct&, void* scratch);

}  // namespace drivetrain::kernels
