// A function with a hand-written backward as one autograd node, without the compile time of torch::autograd::Function.
//
//   y = differentiable({x}, [](const Tensors& x) { return x[0] * 2; },
//                      [](const Tensors& dy) { return Tensors{dy[0] * 2}; });
//
// `forward` runs once, without autograd, and must return new tensors (not views of inputs). `backward` is kept in the
// graph (not at all if no input needs a gradient), runs at most once, also without autograd,
// and is released afterwards: what it captures is what the graph saves.
// It returns one gradient per input; undefined ones are none.
#pragma once

#include <functional>

#include <drivetrain/param.h>

namespace drivetrain {

Tensors differentiable(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward,
                       std::function<Tensors(const Tensors&)> backward);

}  // namespace drivetrain
