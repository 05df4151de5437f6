// The parameters of one block, as the layers of the model's own block would create them: names, layouts, initial values
// and order are those of plain layers, so checkpoints do not notice. Main thread.
#pragma once

#include <optional>
#include <string>

#include <drivetrain/layers.h>

namespace drivetrain::fused_block {

struct WeightAndBias {
  ParamPtr weight, bias;  // bias: null where there is none
};

struct BlockParams {
  WeightAndBias norm1, qkv, attn_proj, norm2, fc, mlp_proj;
  std::vector<ParamPtr> in_order() const;
};

// Creates them by `layers`. Nothing, and `reason` says why, if a fused block cannot compute what `spec` or these layers
// want.
std::optional<BlockParams> make_parameters(const BlockSpec& spec, LayerFactory& layers, std::string& reason);

}  // namespace drivetrain::fused_block
