// Rotary position embedding of queries and keys inside the fused q, k, v tensor.
//
// Source: Su et al. 2021, "RoFormer", eq. 34; frequency scaling for long context from Llama 3.1. We differ: pairs are
// (i, i + D/2), the half-split convention of Hugging Face's weights, not neighbours. Angles are computed in float64 and
// kept as float32 cosines and sines (float64 for float64 activations); the turn itself is float32 also for 16-bit
// activations. Shared by the blocks of one model. Thread: main.
//
// Legend: B batch, S sequence, H query heads, G key/value heads, D head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <drivetrain/random.h>
#include <drivetrain/toolkit/ops/ops.h>

#include "shape.h"

namespace drivetrain::gpt {

// Radians per token of each pair, D/2 of them.
std::vector<double> rotary_frequencies(const RotaryScaling& scaling, int64_t head_dim);

struct QueryKeyValue {
  at::Tensor q, k, v;  // [B, S, H, D], [B, S, G, D] twice
};

class Rotary {
 public:
  explicit Rotary(std::vector<double> frequencies) : positions_(std::move(frequencies)) {}

  // qkv [B, S, (H + 2 G) D]: new tensors, q and k turned by the positions that the batch's columns have.
  // One autograd node that saves no activation: its backward is the turn back.
  QueryKeyValue apply(const at::Tensor& qkv, int64_t heads, int64_t groups, const StepContext& ctx);

 private:
  ops::RotaryPositions positions_;
};

}  // namespace drivetrain::gpt
