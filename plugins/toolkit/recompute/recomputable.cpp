// Regions that run again in backward, as one autograd node each:
// the node keeps the region's inputs, and its backward runs the region with recording on leaves of its own,
// then that graph's backward.
//
// The inner graph is private to the node, so weights inside it get their gradients exactly once;
// work on weight gradients goes where the unit's forward would have sent it,
// though it is captured on whatever thread backward runs.
#include <drivetrain/toolkit/recompute/recomputable.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {
namespace {

// What a region is run again from.
class RegionInputs {
 public:
  RegionInputs(const Tensors& inputs, std::string_view region) : region_(region) {
    for (const at::Tensor& t : inputs) {
      kept_.push_back(t.defined() ? t.detach() : t);
      needs_gradient_.push_back(t.defined() && t.requires_grad());
      versions_.push_back(t.defined() ? t._version() : 0);
    }
  }

  // Leaves of a graph of their own, with the values that forward saw.
  Tensors leaves() {
    Tensors leaves = std::move(kept_);
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].defined()) continue;
      if (leaves[i]._version() != versions_[i])
        throw fail(ErrorCode::internal, "input ", i, " of region ", region_,
                   " was changed in place after the region ran: running it ", "again would give another result");
      leaves[i].set_requires_grad(needs_gradient_[i]);
    }
    return leaves;
  }

 private:
  const std::string region_;
  Tensors kept_;
  std::vector<bool> needs_gradient_;
  std::vector<int64_t> versions_;
};

// A graph has a node only if something in front of it needs a gradient;
// parameters inside the region do where no input does.
Tensors with_grad_input(const Tensors& inputs) {
  Tensors all = inputs;
  const auto needs = [](const at::Tensor& t) { return t.defined() && t.requires_grad(); };
  if (std::any_of(inputs.begin(), inputs.end(), needs)) return all;
  all.push_back(at::empty({0}));
  all.back().set_requires_grad(true);
  return all;
}

// Runs the private graph backward and gives the gradients of its leaves.
Tensors gradients_of(Tensors& leaves, Tensors outputs, const Tensors& dy, size_t count) {
  Tensors roots, seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad() || !dy[i].defined()) continue;
    roots.push_back(std::move(outputs[i]));
    seeds.push_back(dy[i]);
  }
  outputs.clear();
  if (!roots.empty()) torch::autograd::backward(roots, seeds);
  Tensors gradients(count);
  for (size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i].defined()) gradients[i] = std::move(leaves[i].mutable_grad());
  return gradients;
}

bool is_kept(const StepContext& ctx, std::string_view region) {
  return !at::GradMode::is_enabled() || ctx.keep(region) == Keep::all;
}

}  // namespace

Tensors recomputable(StepContext& ctx, std::string_view region, const Tensors& inputs,
                     const std::function<Tensors(const Tensors&)>& fn) {
  if (is_kept(ctx, region)) return fn(inputs);
  const auto kept = std::make_shared<RegionInputs>(inputs, region);
  const Tensors all = with_grad_input(inputs);
  const auto forward = [&](const Tensors&) {
    Tensors outputs = fn(inputs);
    // An input that came back as it was would lose its own history.
    for (at::Tensor& y : outputs)
      if (std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& x) { return x.is_same(y); })) y = y.detach();
    return outputs;
  };
  return differentiable(all, forward, [kept, fn, count = all.size(), work = WeightWork::current()](const Tensors& dy) {
    const CurrentWeightWork current(work);
    const at::AutoGradMode recording(true);
    Tensors leaves = kept->leaves();
    return gradients_of(leaves, fn(leaves), dy, count);
  });
}

at::Tensor recomputable_linear(StepContext& ctx, std::string_view region, const Tensors& inputs,
                               const std::function<at::Tensor(const Tensors&)>& fn,
                               const std::shared_ptr<Linear>& linear) {
  if (is_kept(ctx, region)) return linear->forward(fn(inputs), ctx);
  const auto kept = std::make_shared<RegionInputs>(inputs, region);
  const Tensors all = with_grad_input(inputs);
  const auto forward = [&](const Tensors&) { return Tensors{linear->apply(fn(inputs), {}, nullptr)}; };
  return differentiable(all, forward,
                        [kept, fn, linear, count = all.size(), work = WeightWork::current()](const Tensors& dy) {
                          const CurrentWeightWork current(work);
                          Tensors leaves = kept->leaves();
                          Tensors x(1);
                          {
                            const at::AutoGradMode recording(true);
                            x[0] = fn(leaves);
                          }
                          Linear::Options options;
                          options.wants_dx = x[0].requires_grad();
                          const Tensors dx = {linear->apply_backward(dy[0], x[0].detach(), options, *work)};
                          return gradients_of(leaves, std::move(x), dx, count);
                        })[0];
}

}  // namespace drivetrain
