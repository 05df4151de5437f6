// The layers of a transformer block: names and shapes. The model's own block and fused blocks make these
// layers with a LayerFactory, in this order, so that parameters, layouts and initial values are equal. A pure function;
// thread: any.
#pragma once

#include <drivetrain/layers.h>

namespace drivetrain {

// x += r attn_norm(attn_proj(attention(rotary(qk_norm(qkv(norm1(x))))))), x += r mlp_norm(mlp_proj(act(fc(norm2(x))))),
// r BlockSpec::residual_scale; BlockSpec::parallel: norm2 takes the first x. Norms that the block has not are not set.
struct BlockLayerSpecs {
  std::optional<NormSpec> norm1;
  LinearSpec qkv;                          // output columns: queries, keys, values
  std::optional<NormSpec> q_norm, k_norm;  // of [B, S, heads, head_dim], or of [B, S, heads * head_dim]
  AttentionSpec attention;
  LinearSpec attn_proj;
  std::optional<NormSpec> attn_norm, norm2;
  LinearSpec fc;  // output columns of a gated activation: gate, up
  LinearSpec mlp_proj;
  std::optional<NormSpec> mlp_norm;
  // With BlockSpec::mixture, instead of fc and mlp_proj, which are then not to be made. The layers of the MLP that
  // every token passes are set if there is one; the gate has one output column.
  std::optional<LinearSpec> shared_fc, shared_proj, shared_gate;
};
BlockLayerSpecs block_layer_specs(const BlockSpec& block);

}  // namespace drivetrain
