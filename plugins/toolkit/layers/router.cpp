// The router of one device, and the losses that keep its experts' loads equal.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {
namespace {

constexpr double kTiny = 1e-20;  // DeepSeek-V3's, of the sum of sigmoid scores

void check(const RouterSpec& s) {
  const auto refuse = [&](const auto&... why) { throw fail(ErrorCode::config, "router ", s.name, ": ", why...); };
  if (s.experts < 1 || s.chosen < 1 || s.chosen > s.experts)
    refuse("a token cannot choose ", s.chosen, " of ", s.experts, " experts; choose from 1 to all of them");
  if (s.groups < 1 || s.experts % s.groups != 0)
    refuse(s.groups, " groups do not divide ", s.experts, " experts; every group has as many");
  if (s.chosen_groups < 1 || s.chosen_groups > s.groups)
    refuse("a token cannot choose ", s.chosen_groups, " of ", s.groups, " groups");
  if (s.chosen > s.chosen_groups * (s.experts / s.groups))
    refuse("a token chooses ", s.chosen, " experts, but ", s.chosen_groups, " groups have only ",
           s.chosen_groups * (s.experts / s.groups));
  if (s.bias_update_rate > 0 && !s.bias)
    refuse("the model wants its bias updated by ", s.bias_update_rate, " a step, and nobody does it; add ",
           "\"router_bias\" to the section \"strategy\", or set router_bias_update_rate to 0");
}

// f and P of the routers of a model, for the pooled loss: its gradient needs those of all layers, which are known when
// backward begins. One micro-batch of several may be under way.
class BalancePool {
 public:
  struct Entry {
    int64_t step = -1;
    at::Tensor load, scores;  // f and P, [E]
  };
  // `entries`: of every router of the model, by index.
  std::vector<Entry>& of(int64_t micro, int64_t layers) {
    std::vector<Entry>& list = entries_[micro];
    list.resize(std::max(list.size(), static_cast<size_t>(layers)));
    return list;
  }

 private:
  std::map<int64_t, std::vector<Entry>> entries_;
};

// logits [T, E] = x W^T, in float32 (float64 for float64), whatever the types of both.
at::Tensor logits_of(const at::Tensor& x_TD, const ParamPtr& weight) {
  const at::ScalarType type = x_TD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return differentiable(
      {x_TD, weight->tensor}, [&](const Tensors& in) { return Tensors{product(in[0].to(type), in[1].to(type))}; },
      [x = x_TD.detach(), weight, type, wants_dx = x_TD.requires_grad(),
       work = WeightWork::current()](const Tensors& dy) {
        Tensors gradients(2);
        if (wants_dx) gradients[0] = product_backward(dy[0], weight->tensor.detach().to(type)).to(x.scalar_type());
        if (weight->trainable) work->run([=, dy = dy[0]] { accumulate_weight_grad(*weight, dy, x.to(type)); });
        return gradients;
      })[0];
}

class PlainRouter : public Router {
 public:
  PlainRouter(const RouterSpec& spec, std::shared_ptr<BalancePool> pool) : spec_(spec), pool_(std::move(pool)) {
    check(spec_);
    weight_ = std::make_shared<Param>(spec.name + ".weight", Layout::whole({spec.experts, spec.hidden}), spec.init);
    weight_->role = ParamRole::router;
  }
  std::vector<ParamPtr> params() const override { return {weight_}; }

  Routing forward(const at::Tensor& x, StepContext& ctx) override {
    const at::Tensor logits = logits_of(x.reshape({-1, spec_.hidden}), weight_);
    const bool softmax = spec_.scores == RouterScores::softmax;
    const at::Tensor scores = softmax ? at::softmax(logits, 1) : at::sigmoid(logits);
    Routing routing;
    routing.experts_TK = spec_.forced ? in_turn(scores) : choose(scores.detach());
    at::Tensor weights = at::gather(scores, 1, routing.experts_TK);
    if (spec_.renormalize) weights = weights / (weights.sum(1, true) + (softmax ? 0 : kTiny));
    routing.weights_TK = spec_.scale == 1 ? weights : weights * spec_.scale;
    if (ctx.mode() == Mode::train) balance(logits, scores, routing.experts_TK, ctx);
    return routing;
  }

 private:
  // Of equal scores the smaller id: a stable sort keeps the order of equal ones.
  at::Tensor choose(at::Tensor scores) const {
    const at::NoGradGuard no_grad;
    if (spec_.bias) scores = scores + spec_.bias->bias_E.to(scores.device());
    if (spec_.chosen_groups < spec_.groups) {
      const int64_t T = scores.size(0), size = spec_.experts / spec_.groups;
      const at::Tensor by_group = scores.view({T, spec_.groups, size});
      const at::Tensor best = std::get<0>(at::topk(by_group, std::min<int64_t>(2, size), 2)).sum(2);
      const at::Tensor groups = std::get<1>(at::sort(best, true, 1, true)).narrow(1, 0, spec_.chosen_groups);
      const at::Tensor kept = at::zeros({T, spec_.groups}, groups.options().dtype(at::kBool)).scatter_(1, groups, true);
      scores = by_group.masked_fill(kept.logical_not().unsqueeze(2), -std::numeric_limits<double>::infinity())
                   .view({T, spec_.experts});
    }
    return std::get<1>(at::sort(scores, true, 1, true)).narrow(1, 0, spec_.chosen).contiguous();
  }

  at::Tensor in_turn(const at::Tensor& scores) const {
    const at::Tensor all = at::arange(scores.size(0) * spec_.chosen, scores.options().dtype(at::kLong));
    return all.remainder(spec_.experts).view({scores.size(0), spec_.chosen});
  }

  // Losses and figures of a training step.
  void balance(const at::Tensor& logits, const at::Tensor& scores, const at::Tensor& experts, StepContext& ctx) {
    const int64_t T = scores.size(0);
    const bool again = ctx.visit().direction == Direction::backward;  // the unit is recomputed
    const at::Tensor ids = experts.reshape({-1});
    const at::Tensor counts = at::zeros({spec_.experts}, ids.options()).scatter_add_(0, ids, at::ones_like(ids));
    if (spec_.bias && !again) add_counts(counts);
    const at::Tensor shares = spec_.scores == RouterScores::softmax ? scores : scores / (scores.sum(1, true) + kTiny);
    if (spec_.z_weight != 0) add_loss("z_loss", mean_of_tokens(at::logsumexp(logits, 1).square()), spec_.z_weight, ctx);
    if (spec_.balance == BalanceLoss::per_layer && spec_.balance_weight != 0) {
      const at::Tensor loss =
          (mean_of_tokens(shares) * load(counts, T)).sum() * (double(spec_.experts) / double(spec_.chosen));
      add_loss("load_balancing_loss", loss, spec_.balance_weight, ctx);
    }
    if (spec_.balance == BalanceLoss::pooled && spec_.balance_weight != 0)
      add_loss("load_balancing_loss", pooled(mean_of_tokens(shares), counts, T, again, ctx), spec_.balance_weight, ctx);
    if (!again) report(counts, shares, ctx);
  }

  // The figure is that of this layer; the run's has the sum over layers.
  void add_loss(const char* name, const at::Tensor& value, double weight, StepContext& ctx) const {
    ctx.add_loss(name, value, weight);
    if (ctx.visit().direction == Direction::forward) ctx.metric(concat(spec_.name, ".", name), value.detach());
  }

  // Over the tokens of all positions of the rows. What a rank adds to the loss counts by those of its labels that
  // count, of which ranks with other positions have other numbers: so each of them adds the mean of all, and the
  // gradient of a token is the sum of what they add.
  at::Tensor mean_of_tokens(const at::Tensor& values) const {
    if (!spec_.sum_positions) return values.mean(0);
    at::Tensor tokens = at::full({1}, static_cast<double>(values.size(0)), values.options().dtype(at::kDouble));
    spec_.sum_positions(tokens);
    const auto sum_over_ranks = [sum = spec_.sum_positions, tokens](const at::Tensor& part) {
      at::Tensor whole = part.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).contiguous();
      sum(whole);
      return (whole / tokens).to(part.scalar_type());
    };
    return differentiable(
        {values}, [&](const Tensors& in) { return Tensors{sum_over_ranks(in[0].sum(0).reshape({-1}))}; },
        [sum_over_ranks, shape = values.sizes().vec()](const Tensors& dy) {
          return Tensors{sum_over_ranks(dy[0]).expand(shape)};
        })[0];
  }

  // f_e = c_e / T, over the tokens of all positions of the rows.
  at::Tensor load(const at::Tensor& counts, int64_t tokens) const {
    const at::NoGradGuard no_grad;
    at::Tensor sums =
        at::full_like(counts, static_cast<double>(tokens), counts.options().dtype(at::kDouble)).narrow(0, 0, 1);
    sums = at::cat({counts.to(at::kDouble), sums});
    if (spec_.sum_positions) spec_.sum_positions(sums);
    return (sums.narrow(0, 0, spec_.experts) / sums.narrow(0, spec_.experts, 1)).to(at::kFloat);
  }

  // This router's part of the loss E sum_e f_e P_e of means over all layers: what it adds to the sum over those before
  // it. The parts of all routers together are the loss; the gradient of each P has the f of all.
  at::Tensor pooled(const at::Tensor& scores, const at::Tensor& counts, int64_t tokens, bool again, StepContext& ctx) {
    const int64_t micro = ctx.visit().micro, step = ctx.step();
    BalancePool::Entry& own = pool_->of(micro, spec_.layers).at(static_cast<size_t>(spec_.index));
    if (!again) own = {step, load(counts, tokens), scores.detach().to(at::kFloat)};
    const double factor = double(spec_.experts) / double(spec_.layers * spec_.layers);
    const auto sum = [pool = pool_, micro, step, layers = spec_.layers](at::Tensor BalancePool::Entry::*what,
                                                                        int64_t count) {
      at::Tensor total;
      for (int64_t i = 0; i < count; ++i) {
        const BalancePool::Entry& entry = pool->of(micro, layers).at(static_cast<size_t>(i));
        if (entry.step != step) continue;
        total = total.defined() ? total + entry.*what : entry.*what;
      }
      return total;
    };
    const auto check_all = [pool = pool_, micro, step, layers = spec_.layers, name = spec_.name] {
      for (const BalancePool::Entry& entry : pool->of(micro, layers))
        if (entry.step != step)
          throw fail(ErrorCode::config, "router ", name, ": a pooled balance loss needs the loads of all ", layers,
                     " routers, and other pipeline stages have some; use the balance loss per layer (aux_loss ",
                     "\"per_layer\"), or one stage");
    };
    return differentiable(
        {scores},
        [&](const Tensors&) {
          const auto until = [&](int64_t count) {
            const at::Tensor f = sum(&BalancePool::Entry::load, count), P = sum(&BalancePool::Entry::scores, count);
            return f.defined() ? (f * P).sum() * factor : at::zeros({}, own.load.options());
          };
          return Tensors{until(spec_.index + 1) - until(spec_.index)};
        },
        [=, layers = spec_.layers, type = scores.scalar_type()](const Tensors& dy) {
          check_all();
          return Tensors{(sum(&BalancePool::Entry::load, layers) * (dy[0] * factor)).to(type)};
        })[0];
  }

  void add_counts(const at::Tensor& counts) const {
    const at::NoGradGuard no_grad;
    at::Tensor& sum = spec_.bias->counts_E;
    sum = sum.defined() ? sum.to(counts.device()).add_(counts) : counts.clone();
  }

  void report(const at::Tensor& counts, const at::Tensor& shares, StepContext& ctx) const {
    const at::NoGradGuard no_grad;
    const at::Tensor load = counts.to(at::kDouble), p = shares.detach();
    ctx.metric(spec_.name + ".load", load.max() / load.mean());
    ctx.metric(spec_.name + ".entropy", -at::xlogy(p, p).sum(1).mean());
  }

  const RouterSpec spec_;
  const std::shared_ptr<BalancePool> pool_;
  ParamPtr weight_;
};

}  // namespace

RouterMaker make_plain_routers() {
  return [pool = std::make_shared<BalancePool>()](const RouterSpec& spec) -> std::shared_ptr<Router> {
    return std::make_shared<PlainRouter>(spec, pool);
  };
}

}  // namespace drivetrain
