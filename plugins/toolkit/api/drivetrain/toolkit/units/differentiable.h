// A function with a hand-written backward as one autograd node, without the compile time of torch::autograd::Function.
//
//   y = differentiable({x}, [](const Tensors& x) { return x[0] * 2; },
//                      [](const Tensors& dy) { return Tensors{dy[0] * 2}; });
//
// `forward` runs once, in the call, without autograd. It must return new tensors, not views of inputs. `backward` runs
// at most once, in the backward pass, without autograd. It returns one gradient per input; undefined means none. The
// graph holds `backward`, and with it what it captures, until it has run. If no input needs a gradient it is dropped at
// once. Thread: `forward` on the caller's, `backward` on autograd's. Both may throw.
#pragma once

#include <functional>

#include <drivetrain/param.h>

namespace drivetrain {

Tensors differentiable(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward,
                       std::function<Tensors(const Tensors&)> backward);

}  // namespace drivetrain
