// Runs a unit's private graph: inputs detached on the way in, outputs detached on the way out.
#include <drivetrain/toolkit/units/autograd_unit.h>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <drivetrain/error.h>
#include <drivetrain/weight_work.h>

namespace drivetrain {

AutogradUnit::~AutogradUnit() = default;

Tensors AutogradUnit::forward(const Tensors& x, StepContext& ctx, Saved& saved) {
  const bool recording = at::GradMode::is_enabled();
  Tensors inputs;
  for (const at::Tensor& t : x) {
    at::Tensor leaf = t.detach();
    if (recording && leaf.is_floating_point()) leaf.set_requires_grad(true);
    inputs.push_back(leaf);
  }
  const auto work = std::make_shared<WeightWork>();
  Tensors outputs;
  {
    const CurrentWeightWork current(work);
    outputs = run(inputs, ctx);
  }
  if (!recording) return outputs;

  Tensors detached;
  for (const at::Tensor& t : outputs) detached.push_back(t.detach());
  saved.inputs = std::move(inputs);
  saved.outputs = std::move(outputs);
  saved.extra = work;
  return detached;
}

Tensors AutogradUnit::backward(const Tensors& dy, StepContext& ctx, Saved& saved) {
  if (dy.size() != saved.outputs.size())
    throw fail(ErrorCode::internal, "unit ", name(), " got ", dy.size(), " gradients for ", saved.outputs.size(),
               " outputs");
  Tensors roots, seeds;
  for (size_t i = 0; i < dy.size(); ++i) {
    if (!saved.outputs[i].requires_grad() || !dy[i].defined()) continue;
    roots.push_back(std::move(saved.outputs[i]));
    seeds.push_back(dy[i]);
  }
  saved.outputs.clear();
  if (ctx.visit().part == Part::input)
    std::any_cast<const std::shared_ptr<WeightWork>&>(saved.extra)->put_off(&saved.weight_work);
  if (!roots.empty()) {
    at::AutoGradMode on(true);
    torch::autograd::backward(roots, seeds);
  }
  roots.clear();

  // What autograd left on the leaves goes to the slots; layers of the toolkit wrote theirs directly.
  for (const ParamPtr& param : params()) {
    at::Tensor& gradient = param->tensor.mutable_grad();
    if (!gradient.defined()) continue;
    accumulate_grad(*param, gradient);
    gradient.reset();
  }
  Tensors dx;
  for (at::Tensor& input : saved.inputs) dx.push_back(std::move(input.mutable_grad()));
  saved.inputs.clear();
  return dx;
}

}  // namespace drivetrain
