// Layers for one device: what LayerFactory gives before any strategy decorates it.
#pragma once

#include <drivetrain/layers.h>

namespace drivetrain {

// `attention`: a Builder's, or any that computes by the time a layer runs.
std::shared_ptr<LayerFactory> make_plain_layers(std::shared_ptr<Attention> attention);

}  // namespace drivetrain
