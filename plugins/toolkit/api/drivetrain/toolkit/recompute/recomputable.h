// Regions of a unit that may run again in its backward, for units made of layers. Thread: main; backward on autograd's.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/step_context.h>

namespace drivetrain {

// fn(inputs) as a differentiable function, for units made of layers:
// where the policy keeps less than `all` of this region, only the inputs are kept and fn runs again in backward,
// drawing the same random numbers. fn: a function of its arguments and parameters alone.
Tensors recomputable(StepContext& ctx, std::string_view region, const Tensors& inputs,
                     const std::function<Tensors(const Tensors&)>& fn);
// linear(fn(inputs)) likewise: what fn returns is not kept for the weight's gradient either,
// and the product does not run again.
at::Tensor recomputable_linear(StepContext& ctx, std::string_view region, const Tensors& inputs,
                               const std::function<at::Tensor(const Tensors&)>& fn,
                               const std::shared_ptr<Linear>& linear);

}  // namespace drivetrain
