#include "blocks.h"

#include <ATen/BlasBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_mm_v2.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/where.h>

#include <drivetrain/toolkit/ops/kernel_call.h>

#include "kernels/eight_bits/eight_bits_blocks.h"

namespace drivetrain::fp8 {
namespace {

static_assert(kBlock == kernels::kScaleBlock);

constexpr at::ScalarType kType = at::kFloat8_e4m3fn;

int64_t blocks_in(int64_t size, int64_t of) { return kernels::blocks_of(size, of); }

void blocks_by_kernel(const Operand& given, int64_t block_rows, Scaled* rows, Scaled* columns) {
  const at::Tensor x = given.x().contiguous();
  const at::TensorOptions bytes = x.options().dtype(kType);
  kernels::EightBitsBlocks op;
  op.x = ops::in(x), op.from = given.cast_from(), op.n = given.rows(), op.k = given.columns();
  op.square = block_rows == kBlock, op.dtype = ops::kernel_dtype(x);
  if (rows) {
    *rows = block_room(op.n, op.k, block_rows, bytes);
    op.rows = ops::out<uint8_t>(rows->values), op.row_inverses = ops::out<float>(rows->inverse);
  }
  if (columns) {
    *columns = block_room(op.k, op.n, block_rows, bytes);
    op.columns = ops::out<uint8_t>(columns->values), op.column_inverses = ops::out<float>(columns->inverse);
  }
  check_launch(DRIVETRAIN_CUDA_KERNEL(eight_bits_blocks_cuda)(op, current_stream(x.device())), "cast of blocks");
}

// A number per block for each of its numbers.
at::Tensor over_blocks(const at::Tensor& t, int64_t block_rows, int64_t N, int64_t K) {
  const at::Tensor rows = block_rows > 1 ? t.repeat_interleave(block_rows, 0).narrow(0, 0, N) : t;
  return rows.repeat_interleave(kBlock, 1).narrow(1, 0, K);
}

// Exact: the scales are powers of two.
at::Tensor widened(const Scaled& t) {
  return t.values.to(at::kFloat).mul_(over_blocks(t.inverse, t.block_rows, t.values.size(0), t.values.size(1)));
}

// 1.75 * 2^8 is the largest number; amax is fraction * 2^exponent with a fraction from 0.5 to 1.
at::Tensor scales_of(const at::Tensor& amax) {
  const auto [fraction, exponent] = at::frexp(amax);
  const at::Tensor power = 9 - exponent - (fraction > 0.875).to(exponent.scalar_type());
  const at::Tensor scale = at::exp2(power.clamp_max(126).to(at::kFloat));
  return at::where(amax > 0, scale, at::ones_like(scale)) + (amax - amax);
}

}  // namespace

Scaled block_room(int64_t R, int64_t S, int64_t block_rows, const at::TensorOptions& bytes) {
  const int64_t blocks = blocks_in(S, kBlock), height = kernels::rounded_up(R, kernels::kScaledRows);
  const at::TensorOptions numbers = bytes.dtype(at::kFloat);
  Scaled t;
  t.values = at::empty({height, kernels::rounded_up(S, kBlock)}, bytes);
  t.inverse = block_rows == kBlock
                  ? at::empty({blocks_in(R, kBlock), kernels::rounded_up(blocks, kernels::kScalesTogether)}, numbers)
                  : at::empty({blocks, height}, numbers).t();
  t.block_rows = block_rows, t.rows = R;
  return t;
}

Scaled cast_blocks(const Operand& given, int64_t block_rows) {
  const at::NoGradGuard off;
  Scaled cast;
  if (by_kernel(given)) return blocks_by_kernel(given, block_rows, &cast, nullptr), cast;
  const at::Tensor& x = given.x();
  const int64_t N = x.size(0), K = x.size(1), tall = blocks_in(N, block_rows), wide = blocks_in(K, kBlock);
  const at::Tensor padded = at::constant_pad_nd(x.to(at::kFloat), {0, wide * kBlock - K, 0, tall * block_rows - N});
  const at::Tensor amax = at::amax(padded.abs().view({tall, block_rows, wide, kBlock}), {1, 3});
  const at::Tensor scale = scales_of(amax);
  const double most = largest(kType);
  cast.values = (x.to(at::kFloat) * over_blocks(scale, block_rows, N, K)).clamp_(-most, most).to(kType);
  cast.inverse = at::reciprocal(scale), cast.block_rows = block_rows;
  return cast;
}

// A square has one scale either way; a row of 128 is another one.
Scaled cast_blocks_transposed(const Operand& x, int64_t block_rows) {
  const at::NoGradGuard off;
  Scaled columns;
  if (by_kernel(x)) return blocks_by_kernel(x, block_rows, nullptr, &columns), columns;
  return block_rows == kBlock ? transposed(cast_blocks(x, block_rows)) : cast_blocks(x.x().t(), block_rows);
}

Both cast_blocks_both(const Operand& x, int64_t block_rows) {
  const at::NoGradGuard off;
  Both both;
  if (by_kernel(x)) return blocks_by_kernel(x, block_rows, &both.rows, &both.columns), both;
  return {cast_blocks(x, block_rows), cast_blocks_transposed(x, block_rows)};
}

BlockScales for_product(const Scaled& t) {
  using Kind = at::blas::ScalingType;
  if (t.block_rows == kBlock) return {t.inverse.t(), static_cast<int64_t>(Kind::BlockWise128x128)};
  return {t.inverse, static_cast<int64_t>(Kind::BlockWise1x128)};
}

at::Tensor block_product(const Scaled& a, const Scaled& b, at::ScalarType out, const at::Tensor& bias) {
  const at::NoGradGuard off;
  if (a.rows < 0) {
    at::Tensor y = at::mm(widened(a), widened(b).t());
    return (bias.defined() ? y.add_(bias) : y).to(out);
  }
  const auto [of_a, kind_a] = for_product(a);
  const auto [of_b, kind_b] = for_product(b);
  const at::Tensor y = at::_scaled_mm_v2(a.values, b.values.t(), {of_a}, {kind_a}, {}, {of_b}, {kind_b}, {},
                                         bias.defined() ? std::optional(bias) : std::nullopt, out);
  return y.narrow(0, 0, a.rows).narrow(1, 0, b.rows);
}

}  // namespace drivetrain::fp8
