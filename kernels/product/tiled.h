// Chains of products of bfloat16 matrices, such as Newton-Schulz iterations, with float32 sums. Matrices lie in memory
// as tiles, and a result is written as the tiles that the next product reads on its left. What stands on the right is
// packed as it is needed, a few columns at a time, from a matrix that is still in the caches: reading a second copy of
// it would take longer.
//
// A tiled matrix [R, C] is made of dense pieces of 32 x 32, row of pieces by row of pieces, filled up with zeros;
// aligned to 64 bytes. Every element of a product is summed over k in one order that depends on K alone, so results do
// not depend on how tasks are divided. For processors that product_unit() finds instructions on.
#pragma once

#include "kernels/product/product.h"

namespace drivetrain::kernels {

DRIVETRAIN_KERNEL int64_t tiled_bytes(int64_t rows, int64_t columns);

// factor X, rounded, as tiles.
struct TiledPack {
  const void* x = nullptr;  // [R, C] of bfloat16, or stored as [C, R]
  int64_t stride = 0;       // elements between stored rows
  bool transposed = false;  // stored as [C, R]
  float factor = 1;
  int64_t rows = 0, columns = 0;
  void* tiles = nullptr;
};
DRIVETRAIN_KERNEL int64_t tiled_panels(const TiledPack&);
DRIVETRAIN_KERNEL void tiled_pack_cpu(const TiledPack&, int64_t panel_begin, int64_t panel_end);

// C = of_product A B + of_summand S, rounded once. The summands of k come in one or more calls, each of which
// needs that of the pieces of k before: [k_begin, k_end) of the pieces 0 to tiled_pieces(K).
struct TiledProduct {
  const void* a = nullptr;  // [M, K], tiled
  const void* b = nullptr;  // [K, N], tiled, or [N, K] if b_transposed
  bool b_transposed = false;
  const void* summand = nullptr;  // S [M, N], tiled, or null
  float of_product = 1, of_summand = 0;
  // C is, but for rounding: what is above the diagonal is computed, and stands below it, too. Needs `tiles`, no `c`.
  bool symmetric = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t k_begin = 0, k_end = 0;
  void* sums = nullptr;       // tiled_sum_bytes, aligned to 64, for more than one call; else null
  void* tiles = nullptr;      // C, tiled, or null. May be S; may be B, unless that is transposed or C symmetric
  void* c = nullptr;          // C as plain rows, or null
  int64_t c_stride = 0;       // elements between its rows
  bool c_transposed = false;  // written as [N, M]
  ProductUnit unit = ProductUnit::none;
};
DRIVETRAIN_KERNEL int64_t tiled_pieces(int64_t size);
DRIVETRAIN_KERNEL int64_t tiled_sum_bytes(const TiledProduct&);
DRIVETRAIN_KERNEL int64_t tiled_scratch_bytes(const TiledProduct&);  // that each thread needs
DRIVETRAIN_KERNEL int64_t tiled_tasks(const TiledProduct&);
DRIVETRAIN_KERNEL void tiled_product_cpu(const TiledProduct&, void* scratch, int64_t task_begin, int64_t task_end);

// Adds to the diagonal of a tiled matrix [size, size], rounded.
DRIVETRAIN_KERNEL void tiled_add_to_diagonal(void* tiles, int64_t size, float value);

}  // namespace drivetrain::kernels
