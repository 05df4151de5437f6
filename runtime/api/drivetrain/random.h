// Counter-based random numbers: no generator state.
// A number is a function of a key and the element's global index, so replay saves nothing, slices draw what the whole
// would draw, and every topology sees the same numbers.
//
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", Philox4x32-10. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(random)

namespace drivetrain {

// 128 counter bits and 64 key bits give 4 x 32 random bits.
DRIVETRAIN_API std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A 64-bit FNV-1a hash: parameter names and site names become keys by it.
DRIVETRAIN_API uint64_t hash_name(std::string_view text);

// Rows [first, first + count) of a dimension.
struct RowRange {
  int64_t first = 0, count = 0;
  bool operator==(const RowRange&) const = default;
};

// The `index`-th of `parts` even parts of these rows, in their order. Error(internal) if their number does not divide.
DRIVETRAIN_API std::vector<RowRange> part_of(const std::vector<RowRange>& rows, int64_t parts, int64_t index);

// Where a random number is needed: one per (seed, step, site);
// `first_sample` is the global index of row 0 of the tensor.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t site = 0;  // hash_name("block.3.dropout1")
  int64_t first_sample = 0;
  // Which rows of the whole tensor's dimension 1 (positions of the sequence, heads) the tensor at hand has,
  // in its order; empty: all.
  std::vector<RowRange> rows;
};

// Uniform numbers in [0, 1) for a tensor whose first dimension is samples:
// out[i, e] belongs to sample first_sample + i. Where `rows` is given, the tensor has as many rows in dimension 1, and
// a slice gets what the whole tensor would have in its place.
DRIVETRAIN_API void fill_uniform(at::Tensor& out_float32, const RandomKey& key);

// Standard normal numbers times `std` for elements [begin, begin + out.numel()) of the row-major global tensor `name`.
DRIVETRAIN_API void fill_normal(at::Tensor& out_flat_float32, uint64_t seed, std::string_view name, int64_t begin,
                                double std);

// Inverted dropout with its backward: y = x * keep / (1 - p). x [samples, ...]. p = 0 returns x.
DRIVETRAIN_API at::Tensor dropout(const at::Tensor& x, double p, const RandomKey& key);

}  // namespace drivetrain
