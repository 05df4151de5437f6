// The layers of one block, as the model's own block would ask for them: names, layouts, initial values and order of the
// parameters are those of the plain block. So checkpoints are the same, and factories that decorate layers are asked.
// Main thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/layers.h>

namespace drivetrain::fused_block {

struct NormParams {
  bool here = false;      // false: the block has no such norm
  ParamPtr weight, bias;  // null: the norm has none
};

struct BlockLayers {
  NormParams norm1, norm2;         // before attention and MLP
  NormParams attn_norm, mlp_norm;  // behind them
  NormParams q_norm, k_norm;
  std::shared_ptr<Linear> qkv, attn_proj, fc, mlp_proj;
  std::shared_ptr<AttentionLayer> attention;  // its arguments; the plugin itself is called directly
  std::vector<ParamPtr> params_in_order() const;
};

// Asks `layers` for them. Nothing, and `reason` says why, if a fused block cannot compute what `spec` or these layers
// want.
std::optional<BlockLayers> make_block_layers(const BlockSpec& spec, LayerFactory& layers, std::string& reason);

}  // namespace drivetrain::fused_block
