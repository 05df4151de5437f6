// A unit that is made of layers and a function that calls them: for models whose units need no class of their own.
// Thread: main; the backward of the operators in `run` on autograd's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/layers.h>
#include <drivetrain/unit.h>

namespace drivetrain {

// The forward pass: x and the result are those of Unit::forward. LibTorch's autograd computes the backward.
using UnitForward = std::function<Tensors(const Tensors& x, StepContext& ctx)>;

// `layers`: all those whose parameters `run` computes with. A null one is left out.
UnitPtr make_layer_unit(const std::string& name, const std::vector<std::shared_ptr<Layer>>& layers, UnitForward run);
// The same for one of the model's repeated units (Unit::is_block).
UnitPtr make_layer_block(const std::string& name, const std::vector<std::shared_ptr<Layer>>& layers, UnitForward run);

// What the unit before handed on: {x}, or two tensors that are still to be added (Unit::returns_summands).
at::Tensor sum_of_stream(const Tensors& x);

}  // namespace drivetrain
