// Attention on the CPU under what LibTorch's kernels do not know: windows, queries at an offset, softcap. All types;
// 16 bits are computed in float32. In tasks of 96 queries of a head (backward: of a head) that a thread computes alone,
// with the scores of the keys that these queries see, so that a window costs what it attends to.
//
// Tensors [B, S, H, D] as attention.h has them, without varlen and dropout. Results do not depend on the number of
// threads.
#pragma once

#include <drivetrain/attention.h>
#include <drivetrain/planned_memory.h>

#include "cpu_halves.h"

namespace drivetrain::flash {

// Whether these arguments ask for more than LibTorch's kernels do.
bool beyond_libtorch(const AttentionArgs& args);

AttentionState masked_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args);
Tensors masked_backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args);

// For shapes with a window or softcap, under a causal mask.
Held masked_held_bytes(const AttentionShape& shape);

}  // namespace drivetrain::flash
