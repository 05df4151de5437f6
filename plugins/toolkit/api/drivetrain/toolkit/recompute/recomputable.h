// Regions of a unit that the recompute policy may choose, for units that are made of layers. `fn` runs in the call and,
// if the region is recomputed, once more in backward. Thread: main; in backward autograd's.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/step_context.h>

namespace drivetrain {

// Returns fn(inputs), differentiable. If StepContext::keep(region) is not `all`, only the inputs are kept, and fn runs
// again in backward with the same random numbers. fn must depend on its arguments and on parameters only.
Tensors recomputable(StepContext& ctx, std::string_view region, const Tensors& inputs,
                     const std::function<Tensors(const Tensors&)>& fn);
// Returns linear(fn(inputs)), differentiable. If the region is recomputed, the result of fn is not kept for the
// weight's gradient either; backward runs fn again, but not the matrix product.
at::Tensor recomputable_linear(StepContext& ctx, std::string_view region, const Tensors& inputs,
                               const std::function<at::Tensor(const Tensors&)>& fn,
                               const std::shared_ptr<Linear>& linear);

}  // namespace drivetrain
