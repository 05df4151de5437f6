// Layers for one device: what LayerFactory gives before any strategy decorates it.
#pragma once

#include <drivetrain/layers.h>

namespace drivetrain {

// `attention` is read whenever a layer is made, so that strategies may still wrap it in `build`;
// it outlives the factory.
std::shared_ptr<LayerFactory> make_plain_layers(const std::shared_ptr<Attention>& attention);

}  // namespace drivetrain
