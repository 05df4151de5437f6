// strategy/margins: figures of the routers of a mixture, of which nothing in a run depends: how many choices were close
// to another one, and how many experts got no token.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <utility>

#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>

namespace {

using namespace drivetrain;

struct MarginOptions {
  double margin = 1e-4;
};

// Close: the last expert that was chosen and the first that was not have scores less than the margin apart.
class WatchedRouter : public Router {
 public:
  WatchedRouter(std::shared_ptr<Router> inner, const RouterSpec& spec, double margin)
      : inner_(std::move(inner)), spec_(spec), margin_(margin) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  Routing forward(const at::Tensor& x, StepContext& ctx) override {
    const Routing routing = inner_->forward(x, ctx);
    const at::NoGradGuard off;
    const at::Tensor logits_TE = at::matmul(x.reshape({-1, spec_.hidden}), params().front()->tensor.t());
    const at::Tensor sorted = std::get<0>(at::sort(at::softmax(logits_TE, 1), 1, true));
    const at::Tensor gap_T = sorted.select(1, spec_.chosen - 1) - sorted.select(1, spec_.chosen);
    at::Tensor counts_E = at::zeros({spec_.experts}, at::kLong);
    counts_E.index_add_(0, routing.experts_TK.reshape({-1}), at::ones_like(routing.experts_TK.reshape({-1})));
    // Of each micro-batch: the figures of a step are their means.
    ctx.metric(spec_.name + ".close", gap_T.lt(margin_).sum());
    ctx.metric(spec_.name + ".without", counts_E.eq(0).sum());
    return routing;
  }

 private:
  const std::shared_ptr<Router> inner_;
  const RouterSpec spec_;
  const double margin_;
};

class WatchedLayers : public DecoratedLayers {
 public:
  WatchedLayers(std::shared_ptr<LayerFactory> inner, double margin)
      : DecoratedLayers(std::move(inner)), margin_(margin) {}
  std::shared_ptr<Router> router(const RouterSpec& spec) override {
    return std::make_shared<WatchedRouter>(inner_->router(spec), spec, margin_);
  }

 private:
  const double margin_;
};

class Margins : public Strategy {
 public:
  using Options = MarginOptions;
  static OptionTable options() {
    return table<Options>().field("margin", &Options::margin, "scores that are less apart are close");
  }
  Margins(const Options& options, const Services&) : margin_(options.margin) {}
  void build(Builder& builder) override { builder.layers = std::make_shared<WatchedLayers>(builder.layers, margin_); }

 private:
  const double margin_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "margins", Margins)
