// The innermost loops of group_cpu.cpp: the sums of a few rows of A with a panel of B, in registers. Both kinds add the
// products of an element in the same order, each with one rounding, so they have the same bits.
#pragma once

#include <cstdint>

namespace drivetrain::kernels {

enum class Write : uint8_t { plain, past_caches, add };

// c := or += the sums: a [count][rows of a tile], b [count][columns of a panel], rows of c `stride` elements apart.
using Multiply = void (*)(const float* a, const float* b, int64_t count, float* c, int64_t stride, Write how);

// kStrip: columns that are packed at a time where rows of B lie far from each other. kPackedA, kPackedB: floats that
// are packed at a time, of A and of B: by AVX2 both stay in a second cache of 512 KB, by AVX512 in one of 2 MB (Xeons
// from 2023 on; with 1 MB, as Zen 4 has, nothing was measured).
//
// AVX2: 12 of 16 registers hold sums.
struct NarrowTile {
  static constexpr int64_t kRows = 6, kColumns = 16;
  static constexpr int64_t kStrip = 64, kPackedA = 49152, kPackedB = 32768;
  static const Multiply* multiply();  // [r - 1]: of r rows
};
// AVX512: 24 of 32.
struct WideTile {
  static constexpr int64_t kRows = 12, kColumns = 32;
  static constexpr int64_t kStrip = 512, kPackedA = 196608, kPackedB = 131072;
  static const Multiply* multiply();
};

}  // namespace drivetrain::kernels
