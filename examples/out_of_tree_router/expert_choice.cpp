// Experts choose their tokens. See README.md.
// Legend: B batch, S sequence, T = B S tokens, E experts, C tokens that an expert takes of a sequence.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace {

using namespace drivetrain;

// x W^T in float32, whatever the types of both.
at::Tensor logits_of(const at::Tensor& x, const ParamPtr& weight) {
  return differentiable(
      {x, weight->tensor},
      [](const Tensors& in) { return Tensors{product(in[0].to(at::kFloat), in[1].to(at::kFloat))}; },
      [x = x.detach(), weight, work = WeightWork::current()](const Tensors& dy) {
        if (weight->trainable) work->run([=, dy = dy[0]] { accumulate_weight_grad(*weight, dy, x.to(at::kFloat)); });
        const at::Tensor dx = product_backward(dy[0], weight->tensor.detach().to(at::kFloat));
        return Tensors{dx.to(x.scalar_type()), {}};
      })[0];
}

class ExpertChoice : public Router {
 public:
  // The router inside knows how the weight is named, cut, filled and trained.
  ExpertChoice(const RouterSpec& spec, double capacity, std::shared_ptr<Router> inner)
      : spec_(spec), capacity_(capacity), inner_(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }

  // Of tokens with equal scores an expert takes the first, so a recomputed unit chooses as it did.
  Routing forward(const at::Tensor& x, StepContext& ctx) override {
    if (ctx.mode() == Mode::generate)
      throw fail(ErrorCode::config, "strategy/expert_choice: ", spec_.name,
                 " chooses among all tokens of a sequence, and a text that is generated has only those so far");
    const int64_t S = x.size(1), T = x.size(0) * S, E = spec_.experts;
    const at::Tensor scores = at::softmax(logits_of(x.reshape({T, spec_.hidden}), params().front()), 1);
    const at::Tensor experts = choose(scores.detach().view({-1, S, E}).transpose(1, 2), S);
    if (ctx.mode() == Mode::train && ctx.visit().direction == Direction::forward)
      ctx.metric(spec_.name + ".without_expert", experts.select(1, 0).lt(0).to(at::kDouble).mean());
    return {experts, at::gather(scores, 1, experts.clamp_min(0)) * spec_.scale * experts.ge(0)};
  }

 private:
  // scores [B, E, S]. The experts of each token come first in its row, which is as long as the longest needs.
  at::Tensor choose(const at::Tensor& scores, int64_t S) const {
    const at::NoGradGuard no_grad;
    const double share = capacity_ * static_cast<double>(spec_.chosen) / static_cast<double>(spec_.experts);
    const int64_t C = std::clamp<int64_t>(static_cast<int64_t>(share * static_cast<double>(S)), 1, S);
    const at::Tensor best = std::get<1>(at::sort(scores, true, 2, true)).narrow(2, 0, C);
    const at::Tensor taken = at::zeros(scores.sizes(), best.options().dtype(at::kBool)).scatter_(2, best, true);
    const at::Tensor taken_TE = taken.transpose(1, 2).reshape({-1, spec_.experts});
    const at::Tensor ids = at::arange(1, spec_.experts + 1, best.options()) * taken_TE - 1;
    const at::Tensor named = std::get<0>(at::sort(ids, true, 1, true));
    return named.narrow(1, 0, taken_TE.sum(1).max().item<int64_t>());
  }

  const RouterSpec spec_;
  const double capacity_;
  const std::shared_ptr<Router> inner_;
};

class ChoosingLayers : public DecoratedLayers {
 public:
  ChoosingLayers(std::shared_ptr<LayerFactory> inner, double capacity) : DecoratedLayers(inner), capacity_(capacity) {}
  std::shared_ptr<Router> router(const RouterSpec& spec) override {
    const auto refuse = [&](const char* why) {
      throw fail(ErrorCode::config, "strategy/expert_choice: ", spec.name, why);
    };
    if (spec.scores != RouterScores::softmax || spec.groups != 1 || spec.renormalize || spec.forced ||
        spec.balance_weight != 0 || spec.z_weight != 0 || spec.bias_update_rate != 0 || spec.bias)
      refuse(" has plain softmax scores and needs no loss or bias for equal loads; leave out what asks for more");
    if (spec.sum_positions) refuse(" needs whole sequences; leave out what cuts them over ranks");
    return std::make_shared<ExpertChoice>(spec, capacity_, inner_->router(spec));
  }

 private:
  const double capacity_;
};

class ExpertsChoose : public Strategy {
 public:
  struct Options {
    double capacity = 1;
  };
  static OptionTable options() {
    return table<Options>()
        .field("capacity", &Options::capacity, "an expert takes capacity * num_experts_per_tok / num_experts of a row")
        .at_least(0);
  }
  ExpertsChoose(const Options& options, const Services&) : options_(options) {}
  void plan(PlanContext& ctx) override {
    if (ctx.model().mixture.experts == 0) ctx.no_effect("strategy", "the model has no experts that could choose");
  }
  void build(Builder& builder) override {
    builder.layers = std::make_shared<ChoosingLayers>(builder.layers, options_.capacity);
  }

 private:
  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "expert_choice", ExpertsChoose)
