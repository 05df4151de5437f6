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
};
BlockLayerSpecs block_layer_specs(const BlockSpec& block);
// Whether an activation of BlockSpec multiplies one half of its inputs with the other.
bool is_gated(const std::string& activation);

}  // namespace drivetrain
