// The matrix products that a training step of a rank is made of, as its parameters say.
#pragma once

#include <string>
#include <vector>

#include "internal.h"
#include "plan/prepared_run.h"

namespace drivetrain {

// y [rows, out] = x [rows, in] W^T, and the two products of its backward. Experts: `groups` such matrices, over which
// `chosen` rows of each token are divided.
struct MatrixShape {
  int64_t out = 0, in = 0;
  int64_t count = 0;  // matrices of this shape, or layers of such experts
  std::string first;  // the first parameter that has it: "block.0.attention.qkv.weight"
  int64_t groups = 1, chosen = 1;
  // Where there are so many tokens and all choices are as likely.
  int64_t rows_of_group(int64_t tokens) const { return (tokens * chosen + groups - 1) / groups; }
};

// As this rank holds them, cut and padded, ascending by out and in: matrices that are no table of an embedding, the
// experts of a layer as one, and the output layer, which FLOPs per token tell from the tables; it is left out where
// matrices of the rank are cut, or layers are elsewhere (experts may be).
DRIVETRAIN_INTERNAL std::vector<MatrixShape> matrix_products(const PreparedRun& run);

}  // namespace drivetrain
