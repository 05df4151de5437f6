// Linear layers whose three products have operands of 8 bits: those of blocks. Embeddings and the output layer stay as
// they are, as in Transformer Engine. The factory inside makes the layers; what decorators there add stays in wide
// types.
#pragma once

#include <drivetrain/layers.h>

#include "scaling.h"

namespace drivetrain::fp8 {

// Layers of `inner`, the linear ones with products in 8 bits.
std::shared_ptr<LayerFactory> make_layers(std::shared_ptr<LayerFactory> inner, ScalingPtr scaling);

}  // namespace drivetrain::fp8
