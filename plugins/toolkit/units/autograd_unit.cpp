// Runs a unit's private graph: inputs detached on the way in, outputs detached on the way out.
#include <drivetrain/toolkit/units/autograd_unit.h>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <iterator>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/weight_work.h>

namespace drivetrain {

namespace {

// The unit's graph with further roots: the terms that run() adds to the loss. It lives as long as the graph, since
// layers may ask it in backward.
class TermCollector final : public StepContext {
 public:
  TermCollector(StepContext& inner, std::string unit) : inner_(inner), unit_(std::move(unit)) {}

  int64_t step() const override { return inner_.step(); }
  Mode mode() const override { return inner_.mode(); }
  const Batch& batch() const override { return inner_.batch(); }
  const Visit& visit() const override { return inner_.visit(); }
  std::span<const Visit> ahead() const override { return inner_.ahead(); }
  RandomKey random(std::string_view site) const override { return inner_.random(site); }
  std::vector<RowRange> positions() const override { return inner_.positions(); }
  std::vector<RowRange> activation_positions() const override { return inner_.activation_positions(); }
  Keep keep(std::string_view region) const override { return inner_.keep(region); }
  KeyValueCache* cache() const override { return inner_.cache(); }
  void metric(const std::string& name, const at::Tensor& scalar) override { inner_.metric(name, scalar); }
  at::Tensor add_loss(const std::string& name, const at::Tensor& value, double weight) override {
    if (!at::GradMode::is_enabled())
      throw fail(ErrorCode::plugin, "add_loss(\"", name, "\") in unit ", unit_, ": autograd does not record here, as ",
                 "in a region that the recompute policy runs again; call it outside of the region");
    at::Tensor seed = inner_.add_loss(name, value, weight);
    if (value.requires_grad() && seed.defined()) {
      roots_.push_back(value);
      seeds_.push_back(seed.to(value.options()).expand_as(value));
    }
    return seed;
  }

  void move_to(Tensors& roots, Tensors& seeds) {
    std::move(roots_.begin(), roots_.end(), std::back_inserter(roots));
    std::move(seeds_.begin(), seeds_.end(), std::back_inserter(seeds));
    roots_.clear(), seeds_.clear();
  }

 private:
  StepContext& inner_;
  const std::string unit_;
  Tensors roots_, seeds_;
};

struct UnitGraph {
  std::shared_ptr<WeightWork> work = std::make_shared<WeightWork>();
  std::shared_ptr<TermCollector> context;
};

}  // namespace

AutogradUnit::~AutogradUnit() = default;

Tensors AutogradUnit::forward(const Tensors& x, StepContext& ctx, Saved& saved) {
  const bool recording = at::GradMode::is_enabled();
  Tensors inputs;
  for (const at::Tensor& t : x) {
    at::Tensor leaf = t.detach();
    if (recording && leaf.is_floating_point()) leaf.set_requires_grad(true);
    inputs.push_back(leaf);
  }
  UnitGraph graph;
  if (recording) graph.context = std::make_shared<TermCollector>(ctx, name());
  Tensors outputs;
  {
    const CurrentWeightWork current(graph.work);
    outputs = run(inputs, recording ? *graph.context : ctx);
  }
  if (!recording) return outputs;

  Tensors detached;
  for (const at::Tensor& t : outputs) detached.push_back(t.detach());
  saved.inputs = std::move(inputs);
  saved.outputs = std::move(outputs);
  saved.extra = std::move(graph);
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
  const auto& graph = std::any_cast<const UnitGraph&>(saved.extra);
  graph.context->move_to(roots, seeds);
  if (ctx.visit().part == Part::input) graph.work->put_off(&saved.weight_work);
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
