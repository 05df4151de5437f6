// Sums over ranks by one fixed binary tree, element by element: neighbours first, then neighbouring pairs, and so on;
// who has no neighbour moves up as it is. With 5 ranks: ((0 + 1) + (2 + 3)) + 4. So 2^k neighbouring ranks are always a
// subtree, and nothing depends on where an element lies or how it is cut. bfloat16 and float16 are added in float32
// through the whole tree and rounded once at the end; float32, float64 and integers (which wrap) are added as they are.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

enum class SumType : uint8_t { f32, f64, bf16, f16, i8, i16, i32, i64 };

inline constexpr int64_t kMostSummands = 65536;

struct TreeSum {
  const void* const* sources = nullptr;  // [ranks] arrays of [n] elements
  void* out = nullptr;                   // [n]; may be one of the sources
  int64_t ranks = 0;                     // 1 to kMostSummands
  SumType type = SumType::f32;
  // Or null: [n], where the same sum goes as it is made; may be one of the sources, apart from `out`.
  void* also = nullptr;
};
// Elements [begin, end).
DRIVETRAIN_KERNEL void tree_sum_cpu(const TreeSum&, int64_t begin, int64_t end);

}  // namespace drivetrain::kernels
