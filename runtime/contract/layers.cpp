// What every linear layer has from its halves: one differentiable function.
#include <drivetrain/layers.h>

#include <ATen/core/grad_mode.h>

#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {

Layer::~Layer() = default;
LayerFactory::~LayerFactory() = default;

at::Tensor Linear::forward(const at::Tensor& x, StepContext&) {
  const Options options{true, x.requires_grad()};
  const auto kept = std::make_shared<at::Tensor>();
  const std::vector<ParamPtr> own = params();
  Tensors inputs = {x};
  for (const ParamPtr& param : own) inputs.push_back(param->tensor);
  const bool recording = at::GradMode::is_enabled();
  const auto forward = [&](const Tensors& in) {
    return Tensors{apply(in[0].detach(), options, recording ? kept.get() : nullptr)};
  };
  return differentiable(
      inputs, forward,
      [this, kept, options, x = x.detach(), count = inputs.size(), work = WeightWork::current()](const Tensors& dy) {
        Tensors gradients(count);
        gradients[0] = apply_backward(dy[0], kept->defined() ? *kept : x, options, *work);
        return gradients;
      })[0];
}

}  // namespace drivetrain
