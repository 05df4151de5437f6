// The layers that a pre-norm transformer block is made of, by their names and shapes. The model's own block and fused
// ones ask a LayerFactory for these, in this order, so that parameters, layouts and initial values agree.
#pragma once

#include <drivetrain/layers.h>

namespace drivetrain {

// x += attn_proj(attention(qkv(norm1(x)))), x += mlp_proj(activation(fc(norm2(x)))).
struct BlockLayerSpecs {
  NormSpec norm1;
  LinearSpec qkv;  // columns: queries, keys, values
  AttentionSpec attention;
  LinearSpec attn_proj;
  NormSpec norm2;
  LinearSpec fc;  // columns: gate and up for swiglu
  LinearSpec mlp_proj;
};
BlockLayerSpecs block_layer_specs(const BlockSpec& block);

}  // namespace drivetrain
