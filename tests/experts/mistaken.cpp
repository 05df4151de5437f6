// Mixtures with a mistake that can be asked for, as a strategy inside of the one that splits the experts: what the runs
// of runs_test.cpp must find.
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/ones_like.h>

#include <drivetrain/mesh.h>
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace {

using namespace drivetrain;

// `dropped`: no expert computes with more than 8 rows at a time. `averaged`: gradients as if they were means over two
// ranks. `weighed_before`: an expert's input is multiplied with the router's weight, instead of its output.
class MistakenExperts : public Experts, public TokenExperts3 {
 public:
  MistakenExperts(std::shared_ptr<Experts> inner, int64_t experts, std::string mistake)
      : inner_(std::move(inner)), experts_(experts), mistake_(std::move(mistake)) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  bool takes_tokens(at::DeviceType) const override { return true; }
  double kept_rows(double rows, at::DeviceType device) const override {
    return drivetrain::kept_rows(*inner_, rows, device);
  }

  at::Tensor of_tokens(const at::Tensor& x, const Routing& routing, StepContext& ctx,
                       const std::function<void()>& meanwhile, const std::vector<int64_t>&) override {
    const SortedRows rows = sort_by_expert(routing.experts_TK, experts_);
    at::Tensor x_RD = rows_of_tokens(x, rows), weights = routing.weights_TK;
    if (mistake_ == "weighed_before") {
      x_RD = x_RD * weights.reshape({-1, 1}).index_select(0, rows.order_R).to(x_RD.scalar_type());
      weights = at::ones_like(weights);
    }
    const at::Tensor y = weighted_sum(forward(x_RD, rows.counts_E, ctx), weights, rows);
    meanwhile();
    return y;
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) override {
    if (mistake_ == "dropped") return inner_->forward(x, counts.clamp(0, 8), ctx);
    const at::Tensor y = inner_->forward(x, counts, ctx);
    return differentiable(
        {y}, [](const Tensors& in) { return Tensors{in[0].clone()}; },
        [averaged = mistake_ == "averaged"](const Tensors& dy) { return Tensors{averaged ? dy[0] / 2 : dy[0]}; })[0];
  }

 private:
  const std::shared_ptr<Experts> inner_;
  const int64_t experts_;
  const std::string mistake_;
};

// The losses that a router adds are divided by the number of ranks that share out the experts.
struct DividedLosses : StepContext {
  DividedLosses(StepContext& inner, double ranks) : inner(inner), ranks(ranks) {}
  int64_t step() const override { return inner.step(); }
  Mode mode() const override { return inner.mode(); }
  const Batch& batch() const override { return inner.batch(); }
  const Visit& visit() const override { return inner.visit(); }
  std::span<const Visit> ahead() const override { return inner.ahead(); }
  RandomKey random(std::string_view site) const override { return inner.random(site); }
  at::Tensor add_loss(const std::string& name, const at::Tensor& value, double weight) override {
    return inner.add_loss(name, value / ranks, weight);
  }
  void metric(const std::string& name, const at::Tensor& scalar) override { inner.metric(name, scalar); }
  StepContext& inner;
  const double ranks;
};

// `routed_anew`: where the unit is recomputed, every token goes to the experts behind those that it had chosen.
class MistakenRouter : public Router {
 public:
  MistakenRouter(std::shared_ptr<Router> inner, const RouterSpec& spec, int64_t ranks, std::string mistake)
      : inner_(std::move(inner)), experts_(spec.experts), ranks_(ranks), mistake_(std::move(mistake)) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  Routing forward(const at::Tensor& x, StepContext& ctx) override {
    DividedLosses divided(ctx, mistake_ == "divided" ? static_cast<double>(ranks_) : 1);
    Routing routing = inner_->forward(x, divided);
    if (mistake_ == "routed_anew" && ctx.visit().direction == Direction::backward)
      routing.experts_TK = (routing.experts_TK + 1).remainder(experts_);
    return routing;
  }

 private:
  const std::shared_ptr<Router> inner_;
  const int64_t experts_, ranks_;
  const std::string mistake_;
};

class MistakenLayers : public DecoratedLayers {
 public:
  MistakenLayers(std::shared_ptr<LayerFactory> inner, int64_t ranks, std::string mistake)
      : DecoratedLayers(std::move(inner)), ranks_(ranks), mistake_(std::move(mistake)) {}
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override {
    return std::make_shared<MistakenExperts>(inner_->experts(spec), spec.experts, mistake_);
  }
  std::shared_ptr<Router> router(const RouterSpec& spec) override {
    return std::make_shared<MistakenRouter>(inner_->router(spec), spec, ranks_, mistake_);
  }

 private:
  const int64_t ranks_;
  const std::string mistake_;
};

class Mistaken : public Strategy {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "which")
        .one_of({"none", "dropped", "averaged", "weighed_before", "divided", "routed_anew"});
  }
  Mistaken(const Options& options, const Services&) : mistake_(options.mistake) {}
  void build(Builder& builder) override {
    builder.layers = std::make_shared<MistakenLayers>(builder.layers, builder.mesh.size("ep"), mistake_);
  }

 private:
  const std::string mistake_;
};

}  // namespace

DRIVETRAIN_PLUGIN(Strategy, "mistaken_experts", Mistaken)
