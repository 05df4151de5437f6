// The layers of a pre-norm transformer block: names and shapes. The model's own block and fused blocks make these
// layers with a LayerFactory, in this order, so that parameters, layouts and initial values are equal. A pure function;
// thread: any.
#pragma once

#include <drivetrain/layers.h>

namespace drivetrain {

// x += attn_proj(attention(qkv(norm1(x)))), x += mlp_proj(activation(fc(norm2(x)))).
struct BlockLayerSpecs {
  NormSpec norm1;
  LinearSpec qkv;  // output columns: queries, keys, values
  AttentionSpec attention;
  LinearSpec attn_proj;
  NormSpec norm2;
  LinearSpec fc;  // output columns for swiglu: gate, up
  LinearSpec mlp_proj;
};
BlockLayerSpecs block_layer_specs(const BlockSpec& block);

}  // namespace drivetrain
