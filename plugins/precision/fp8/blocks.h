// Tensors in e4m3 with a scale for each block of numbers, each the largest power of two with which the block fits, so
// that casts change exponents alone; and their products.
//
// On the CPU inverses are [rows / block_rows, columns / kBlock], rounded up. On CUDA (kernels/eight_bits) values and
// scales are padded and laid out for at::_scaled_mm_v2, which is cuBLASLt's and wants sm_90 and CUDA 12.9: see
// for_product. Products sum precisely there; results are bfloat16, or float32 without a bias.
//
// Legend, thread and stream: as cast.h.
#pragma once

#include "cast.h"

namespace drivetrain::fp8 {

// Blocks of block_rows (1 or kBlock) x kBlock numbers; NaN in blocks that are not finite. x as in cast.h.
Scaled cast_blocks(const Operand& x, int64_t block_rows);
// Of x transposed; blocks of single rows are then those of x's columns. Both: on CUDA in one pass over x.
Scaled cast_blocks_transposed(const Operand& x, int64_t block_rows);
Both cast_blocks_both(const Operand& x, int64_t block_rows);

// As product() has it, for operands of blocks; not both of them squares.
at::Tensor block_product(const Scaled& a, const Scaled& b, at::ScalarType out, const at::Tensor& bias);

// Room for R rows of S numbers of such a cast on CUDA: values [R up to a multiple of 16, S up to one of kBlock], and
// scales as the kernel lays them.
Scaled block_room(int64_t R, int64_t S, int64_t block_rows, const at::TensorOptions& bytes);

// An operand's scales as at::_scaled_mm_v2 wants them beside what kind they are. Legend: R rows, B blocks of a row.
//   single rows     [R, B], rows contiguous
//   128 x 128       [B up to a multiple of 4, R / 128 rounded up], blocks contiguous
struct BlockScales {
  at::Tensor inverse;
  int64_t kind;
};
BlockScales for_product(const Scaled& t);

}  // namespace drivetrain::fp8
