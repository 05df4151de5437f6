// What every linear layer has from its halves: one differentiable function.
#include <drivetrain/layers.h>

#include <ATen/core/grad_mode.h>

#include <drivetrain/error.h>
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

bool is_gated(const std::string& activation) {
  for (const char* gated : {"swiglu", "geglu", "geglu_tanh", "reglu"})
    if (activation == gated) return true;
  return false;
}

Layout fc_layout(const ExpertsSpec& spec) {
  const int64_t rows = (is_gated(spec.activation) ? 2 : 1) * spec.ffn;
  return spec.fc ? *spec.fc : Layout::whole({spec.experts * rows, spec.hidden});
}
Layout proj_layout(const ExpertsSpec& spec) {
  return spec.proj ? *spec.proj : Layout::whole({spec.experts * spec.hidden, spec.ffn});
}

std::shared_ptr<Router> LayerFactory::router(const RouterSpec& spec) {
  throw fail(ErrorCode::plugin, "a layer factory does not answer `router`, wanted for ", spec.name,
             ": override it, or derive the factory from DecoratedLayers, which asks the factory inside");
}
std::shared_ptr<Experts> LayerFactory::experts(const ExpertsSpec& spec) {
  throw fail(ErrorCode::plugin, "a layer factory does not answer `experts`, wanted for ", spec.name,
             ": override it, or derive the factory from DecoratedLayers, which asks the factory inside");
}

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
