// Keeps the loads of a mixture's experts equal without a loss: each expert has a bias that is added to its score for
// the choice alone, and that moves by a fixed rate after every update, up where the expert was chosen too rarely.
//
// Source: Wang et al. 2024, "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts" (arXiv 2408.15664),
// algorithm 1; DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 2.1.2.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>

namespace drivetrain::router_bias {
namespace {

constexpr double kUsualRate = 1e-3;

struct Options {
  std::optional<double> update_rate;
};

struct Balanced {
  std::string name;  // of the router
  ParamPtr weight;
  std::shared_ptr<RouterBias> bias;
  double rate = 0;
  bool forced = false;
  std::function<void(at::Tensor&)> sum_positions;  // RouterSpec's
};
using BalancedRouters = std::vector<Balanced>;

double rate_of(const RouterSpec& spec, const Options& options) {
  const double wanted = spec.bias_update_rate;
  if (wanted > 0 && options.update_rate && *options.update_rate != wanted)
    throw fail(ErrorCode::config, "strategy/router_bias: update_rate is ", *options.update_rate,
               ", and the model's router_bias_update_rate is ", wanted, " (", spec.name, "); leave one of them out");
  return wanted > 0 ? wanted : options.update_rate.value_or(kUsualRate);
}

class BiasedRouters final : public DecoratedLayers {
 public:
  BiasedRouters(std::shared_ptr<LayerFactory> inner, const Options& options, const at::Device& device,
                std::shared_ptr<BalancedRouters> made)
      : DecoratedLayers(std::move(inner)), options_(options), device_(device), made_(std::move(made)) {}

  std::shared_ptr<Router> router(const RouterSpec& spec) override {
    if (spec.bias)
      throw fail(ErrorCode::config, "strategy/router_bias: another strategy keeps the bias of ", spec.name,
                 " already; leave one of them out");
    const double rate = rate_of(spec, options_);
    const auto bias = std::make_shared<RouterBias>();
    bias->bias_E = at::zeros({spec.experts}, at::TensorOptions(at::kFloat).device(device_));
    bias->counts_E = at::zeros({spec.experts}, at::TensorOptions(at::kLong).device(device_));
    RouterSpec own = spec;
    own.bias = bias;
    std::shared_ptr<Router> router = inner_->router(own);
    const std::vector<ParamPtr> params = router->params();
    if (params.empty())
      throw fail(ErrorCode::plugin, "strategy/router_bias: the router ", spec.name,
                 " has no parameter, and its weight says on which pipeline stage it is");
    made_->push_back({spec.name, params.front(), bias, rate, spec.forced, spec.sum_positions});
    return router;
  }

 private:
  const Options options_;
  const at::Device device_;
  const std::shared_ptr<BalancedRouters> made_;
};

class RouterBiases : public Strategy {
 public:
  using Options = router_bias::Options;
  static OptionTable options() {
    return table<Options>()
        .field("update_rate", &Options::update_rate,
               "by how much a bias moves after an update; 0: not at all; default: the model's "
               "router_bias_update_rate, else 0.001")
        .at_least(0);
  }
  RouterBiases(const Options& options, const Services& services) : options_(options), services_(services) {}

  void plan(PlanContext& ctx) override {
    const ModelFacts::Mixture& m = ctx.model().mixture;
    if (m.experts == 0)
      return ctx.refuse(
          "the model has no experts whose loads it could balance; give it some (num_experts in its params), or take "
          "router_bias out");
    if (!ctx.run().training)
      return ctx.no_effect("update_rate", "biases move in training, and only checkpoints of a run have them");
    const double elements = static_cast<double>(m.experts) * static_cast<double>(m.layers);
    ctx.memory(MemoryClass::optimizer, "biases of the experts", 4 * elements);
    ctx.memory(MemoryClass::buffers, "counts of the experts", 8 * elements);
    const auto is_forced = [](const Balanced& router) { return router.forced; };
    if (std::any_of(routers_->begin(), routers_->end(), is_forced))
      ctx.no_effect("update_rate", "the model's router_forced_balance chooses experts in turn");
  }

  void build(Builder& builder) override {
    routers_->clear();
    builder.layers = std::make_shared<BiasedRouters>(builder.layers, options_, services_.device, routers_);
  }

  // Keeps the routers of this rank's stage.
  void attach(UnitList& units) override {
    const std::vector<ParamPtr> all = units.all();
    std::erase_if(*routers_,
                  [&](const Balanced& r) { return std::find(all.begin(), all.end(), r.weight) == all.end(); });
    std::vector<std::string> other_rows;
    if (services_.mesh)
      for (const Axis& axis : services_.mesh->axes())
        if (axis.joins_gradients && axis.size > 1) other_rows.push_back(axis.name);
    if (!other_rows.empty()) other_rows_ = services_.mesh->group(other_rows);
  }

  void step_begin(StepContext&) override { in_step_ = true, updated_ = false; }
  // Outside of a step the values are the initial ones, or those of a checkpoint.
  void after_update(Trainables&, StepContext&) override { updated_ = in_step_; }
  void step_end(StepContext&) override {
    in_step_ = false;
    if (updated_ && !routers_->empty()) update();
    for (const Balanced& router : *routers_) router.bias->counts_E.zero_();
  }

  // Called where weights are written: folders of weights hold parameters, and no family here has a tensor for biases.
  at::Tensor merge(const Param& param, const at::Tensor& value, const WholeParam&) const override {
    if (param.role == ParamRole::router && options_.update_rate != 0 && services_.rank == 0 &&
        !std::exchange(told_, true))
      services_.log.warning(
          "strategy/router_bias: folders of weights have no place for the biases of the routers: a model that is read "
          "from one chooses its experts without them. Checkpoints have them");
    return value;
  }

  void state(StateVisitor& visitor) override {
    for (const Balanced& router : *routers_)
      visitor.tensor(router.name + ".bias", router.bias->bias_E, Layout::whole({router.bias->bias_E.numel()}));
  }

 private:
  // Counts are whole numbers, so every order of sums gives the same, and so does the comparison with their mean. Under
  // context parallelism both sums are over its ranks: every token counts equally often, which changes no sign.
  void update() {
    Tensors counts;
    for (const Balanced& router : *routers_) counts.push_back(router.bias->counts_E.to(at::kDouble));
    at::Tensor sums = at::cat(counts);
    if (const auto& sum_positions = routers_->front().sum_positions) sum_positions(sums);
    if (other_rows_) other_rows_->all_reduce(sums)->wait();
    int64_t first = 0;
    for (const Balanced& router : *routers_) {
      const int64_t experts = router.bias->bias_E.numel();
      const at::Tensor own = sums.narrow(0, first, experts);
      first += experts;
      router.bias->bias_E.add_(at::sign(own.sum() - own * experts).to(at::kFloat), router.rate);
    }
  }

  const Options options_;
  const Services& services_;
  const std::shared_ptr<BalancedRouters> routers_ = std::make_shared<BalancedRouters>();
  GroupPtr other_rows_;  // ranks that read other rows or other positions; null: this one alone
  bool in_step_ = false, updated_ = false;
  mutable bool told_ = false;
};

}  // namespace
}  // namespace drivetrain::router_bias

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "router_bias", drivetrain::router_bias::RouterBiases)
