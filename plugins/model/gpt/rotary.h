// The fused q, k, v tensor as queries, keys and values, with the norms of queries and keys and rotary positions.
//
// Source: Su et al. 2021, "RoFormer", eq. 34. We differ: pairs are (i, i + n) of the first 2 n elements of a head, the
// half-split convention of Hugging Face's weights, not neighbours. Angles are computed in float64 and kept as float32
// cosines and sines (float64 for float64 activations); the turn itself is float32 also for 16-bit activations. Shared
// by the blocks of one model. Thread: main.
//
// Legend: B batch, S sequence, H query heads, G key/value heads, D head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <drivetrain/random.h>
#include <drivetrain/toolkit/ops/ops.h>

#include "shape.h"

namespace drivetrain::gpt {

struct QueryKeyValue {
  at::Tensor q, k, v;  // [B, S, H, D], [B, S, G, D] twice
};

class Rotary {
 public:
  explicit Rotary(const RotaryAngles& angles) : positions_(angles.frequencies, angles.scale) {}

  // qkv [B, S, (H + 2 G) D]: new tensors, q and k turned by the positions that the batch's columns have.
  // One autograd node that saves no activation: its backward is the turn back.
  QueryKeyValue apply(const at::Tensor& qkv, int64_t heads, int64_t groups, const StepContext& ctx);
  // The turn alone, of x [B, S, H, D].
  at::Tensor turn(const at::Tensor& x, const StepContext& ctx);

 private:
  ops::RotaryTable table(const StepContext& ctx, const at::Tensor& x);

  ops::RotaryPositions positions_;
};

// Of the blocks of one model: those with a window may have angles of their own. Null: they do not turn.
struct Rotaries {
  std::shared_ptr<Rotary> all, local;
};

}  // namespace drivetrain::gpt
