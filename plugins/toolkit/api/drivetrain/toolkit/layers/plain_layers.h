// Layers for one device: the LayerFactory that strategies decorate. Thread: main.
#pragma once

#include <drivetrain/layers.h>

namespace drivetrain {

// `attention`: Builder::attention(), or another one that may be called when a layer runs. The layers hold it.
std::shared_ptr<LayerFactory> make_plain_layers(std::shared_ptr<Attention> attention);

}  // namespace drivetrain
