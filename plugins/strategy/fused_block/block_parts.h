// What the files of a block's code share: its activations, and the first half of a layer. Main thread.
#pragma once

#include <utility>

#include <drivetrain/random.h>

#include "block.h"

namespace drivetrain::fused_block {

// What lies between the MLP's two products, [B, S, F].
struct Inner {
  bool has_gelu = false;  // the products have GELU, for these rows on this GPU
  at::Tensor fc, act;     // fc before its bias, unless has_gelu; act, if kept: what mlp_proj wants for its backward
  KeptOperand of_act;     // in place of act, if kept: what the second product computed in its cast
};

// What backward reads. A tensor that the recompute policy does not keep is undefined and computed again from those
// before it.
struct Activations {
  bool pair = false;  // x came as {residual, delta}
  double dropout = 0;
  RandomKey key1, key2;  // of both hidden dropouts
  ops::RotaryTable table;
  AttentionArgs attention_args;
  ops::Normed norm1, norm2;         // sums [B, S, D] always; y, if kept: what the layer behind wants for its backward
  ops::Normed attn_norm, mlp_norm;  // without y
  at::Tensor qkv;                   // of normed queries and keys, which are made of it again
  ops::Heads heads;                 // kept without the attention's state
  AttentionState attention;         // without q, k and v where qkv is kept
  at::Tensor attended;              // what attn_proj kept in place of the attention's output; else undefined
  Inner mlp;
  KeptOperand of_norm1, of_norm2;  // in place of y, if kept: what a product computed in its cast
};

constexpr Linear::Options kWhole{.add_bias = true, .wants_dx = true};
constexpr Linear::Options kBare{.add_bias = false, .wants_dx = true};  // the bias goes with the next operation

inline at::Tensor value(const ParamPtr& param) { return param ? param->tensor : at::Tensor(); }

// A norm's output on its way to the layer that reads it.
struct NormOutput {
  const NormReader& reader;
  ops::Normed& norm;
  KeptOperand& kept;  // in place of norm.y, where the layer computes it
};

// layer(x). With Replace::yes x becomes what the layer keeps for its backward, if that is something else;
// `replaced` tells.
inline at::Tensor apply(const Linear& layer, at::Tensor& x, const Linear::Options& options, Replace replace,
                        bool* replaced = nullptr) {
  at::Tensor kept;
  const at::Tensor y = layer.apply(x, options, replace == Replace::yes ? &kept : nullptr);
  if (replaced) *replaced = kept.defined();
  if (kept.defined()) x = std::move(kept);
  return y;
}

inline Replace replace_if(bool yes) { return yes ? Replace::yes : Replace::no; }

}  // namespace drivetrain::fused_block
