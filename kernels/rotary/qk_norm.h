// RMS norms of queries and keys, each head alone, and rotary embedding behind them in one pass over the fused q, k, v
// matrix; backward in one pass, too, from that matrix and the gradients of attention's three tensors.
//
// Source: Henry et al. 2020, "Query-key normalization for transformers", with the RMS norm of Qwen3: a head's x becomes
// turn(x * rstd * (offset + weight)), rstd = 1 / sqrt(mean(x^2) + epsilon). Values only pass. Legend: as in rotary.h.
#pragma once

#include "kernels/rotary/rotary.h"

namespace drivetrain::kernels {

struct QkNormRotary {
  Rotary rotary;                                        // as there, but that nothing is written to `partial`
  const void *q_weight = nullptr, *k_weight = nullptr;  // [C]
  float epsilon = 1e-5F, offset = 0;
  // Backward: the qkv that forward read, [N, (H + 2 G) C]; rotary.bias is added to it again.
  const void* x = nullptr;
  // Backward: sums over kRotaryRows tokens each of the weights' gradients; on the CPU over the heads as well,
  // [blocks_of(N, kRotaryRows), C]; on CUDA [blocks, H, C] and [blocks, G, C].
  float *q_partial = nullptr, *k_partial = nullptr;
};
// Whether the functions take such heads. Others are split, normed and turned one after the other.
DRIVETRAIN_KERNEL bool qk_norm_fits_cpu(const QkNormRotary&);
DRIVETRAIN_KERNEL bool qk_norm_fits_cuda(const QkNormRotary&);
DRIVETRAIN_KERNEL void qk_norm_forward_cpu(const QkNormRotary&, int64_t token_begin, int64_t token_end);
DRIVETRAIN_KERNEL int qk_norm_forward_cuda(const QkNormRotary&, void* stream);
// blocks of kRotaryRows tokens
DRIVETRAIN_KERNEL void qk_norm_backward_cpu(const QkNormRotary&, int64_t block_begin, int64_t block_end);
DRIVETRAIN_KERNEL int qk_norm_backward_cuda(const QkNormRotary&, void* stream);

}  // namespace drivetrain::kernels
