// Counter-based random numbers: there is no generator state. A number is a function of a key and the element's global
// index. So recomputation needs no saved state, a slice of a tensor gets the numbers that the whole tensor would have
// there, and the numbers are the same in every topology.
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

// The 64-bit FNV-1a hash, which makes keys of parameter names and site names.
DRIVETRAIN_API uint64_t hash_name(std::string_view text);

// Rows [first, first + count) of a dimension.
struct RowRange {
  int64_t first = 0, count = 0;
  bool operator==(const RowRange&) const = default;
};

// The `index`-th of `parts` equal parts of these rows, in their order. Throws Error(internal) if the number of rows is
// not a multiple of `parts`.
DRIVETRAIN_API std::vector<RowRange> part_of(const std::vector<RowRange>& rows, int64_t parts, int64_t index);

// The key of the random numbers of one tensor: seed, step, and site (the place in the model).
struct RandomKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t site = 0;         // hash_name("block.3.dropout1")
  int64_t first_sample = 0;  // global sample index of row 0 of the tensor
  // Which rows of the whole tensor's dimension 1 (positions of the sequence, heads) this tensor has, in its order;
  // empty: all.
  std::vector<RowRange> rows;
};

// Fills `out` with uniform numbers in [0, 1). Dimension 0 is samples: out[i, ...] belongs to sample first_sample + i.
// If key.rows is not empty, dimension 1 has the sum of their counts as its size, and each row gets the numbers of that
// row of the whole tensor.
DRIVETRAIN_API void fill_uniform(at::Tensor& out_float32, const RandomKey& key);

// Fills `out` with normal numbers of mean 0 and standard deviation `std`: elements [begin, begin + out.numel()) of the
// row-major global tensor `name`.
DRIVETRAIN_API void fill_normal(at::Tensor& out_flat_float32, uint64_t seed, std::string_view name, int64_t begin,
                                double std);

// Inverted dropout, differentiable: y = x * keep / (1 - p). x [samples, ...], any floating dtype. p = 0 returns x.
DRIVETRAIN_API at::Tensor dropout(const at::Tensor& x, double p, const RandomKey& key);

}  // namespace drivetrain
