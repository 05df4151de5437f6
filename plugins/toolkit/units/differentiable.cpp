// One autograd node type for every hand-written backward.
// A Node instead of torch::autograd::Function: half the compile time, and outputs may be modified in place.
#include <drivetrain/toolkit/units/differentiable.h>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

struct ErasedNode : torch::autograd::Node {
  std::function<Tensors(const Tensors&)> backward;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (!backward) throw Error(ErrorCode::internal, "a unit's graph was run backward twice");
    // Moved out so that what it captured is freed as soon as it ran.
    const auto run = std::move(backward);
    backward = nullptr;
    at::NoGradGuard no_grad;
    return run(gradients);
  }
  void release_variables() override { backward = nullptr; }
  std::string name() const override { return "DrivetrainNode"; }
};

}  // namespace

Tensors differentiable(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward,
                       std::function<Tensors(const Tensors&)> backward) {
  Tensors outputs;
  {
    at::NoGradGuard no_grad;
    outputs = forward(inputs);
  }
  if (!at::GradMode::is_enabled()) return outputs;
  bool needed = false;
  for (const at::Tensor& input : inputs) needed = needed || (input.defined() && input.requires_grad());
  if (!needed) return outputs;

  auto node = std::shared_ptr<ErasedNode>(new ErasedNode, torch::autograd::deleteNode);
  node->backward = std::move(backward);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  // A view made without autograd (linear's, of three dimensions) may not be modified in place; a fresh alias may.
  for (at::Tensor& output : outputs)
    if (output.is_view()) output = output.variable_data();
  torch::autograd::set_history(outputs, node);
  return outputs;
}

}  // namespace drivetrain
