// What every linear layer has from its halves: one differentiable function.
#include <drivetrain/layers.h>

#include <ATen/core/grad_mode.h>

#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {

Layer::~Layer() = default;
LinearProduct::~LinearProduct() = default;
LayerFactory::~LayerFactory() = default;

AttentionMemory AttentionLayer::memory(const AttentionShape& shape) const { return attention_memory(shape); }
Layout weight_layout(const LinearSpec& spec) { return spec.weight ? *spec.weight : Layout::whole({spec.out, spec.in}); }

Layout bias_layout(const LinearSpec& spec) {
  const Layout weight = weight_layout(spec);
  Layout layout = Layout::whole({weight.global_shape.at(0)});
  if (!weight.dims.empty() && !weight.dims[0].axes.empty()) layout.dims = {weight.dims[0]};
  return layout;
}

Layout weight_layout(const LmLossSpec& spec) {
  return spec.weight ? *spec.weight : Layout::whole({spec.vocab, spec.dim});
}

Layout weight_layout(const EmbeddingSpec& spec) {
  return spec.weight ? *spec.weight : Layout::whole({spec.count, spec.dim});
}

Layout weight_layout(const NormSpec& spec) { return spec.weight ? *spec.weight : Layout::whole({spec.dim}); }

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
