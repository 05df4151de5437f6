// Uniform and, by Box-Muller, standard normal numbers from random bits, four per Philox block. Written so that
// compilers make vector code of every loop; only exactly rounded operations (+ - * / sqrt) and no fused ones, so that
// all widths give the same bits.
//
// Source: Box and Muller 1958; logarithm and sine polynomials from S. Moshier's Cephes (single precision).
#pragma once

#include <array>
#include <cstdint>

namespace drivetrain::philox_detail {

constexpr int kLanes = 256;  // blocks computed together: 4 KB of state per array, inside the first-level cache

// words[w][lane] of blocks first .. first + kLanes - 1. The counter's upper half is `sample`.
struct Words {
  alignas(64) std::array<std::array<uint32_t, kLanes>, 4> w;
};
void draw(Words& words, uint64_t first, uint64_t sample, std::array<uint32_t, 2> key);

// out[4 * lane + j]: standard normal numbers of one batch of blocks.
void normals(const Words& words, float* out);

// The same places, uniform in [0, 1): 24 bits, exact in float32.
void uniforms(const Words& words, float* out);

}  // namespace drivetrain::philox_detail
