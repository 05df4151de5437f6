// The experts of one rank among those of all. Source: Lepikhin et al. 2020, "GShard", section 3; without a limit per
// expert, as in Gale et al. 2022, "MegaBlocks"; a token once for each rank, as in DeepSeek-AI 2024, "DeepSeek-V3".
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <utility>

#include <drivetrain/toolkit/units/differentiable.h>

#include "all_to_all.h"

namespace drivetrain::all_to_all {
namespace {

// Tokens and their choices on their way to other ranks, and the gradients of tokens and weights on the way back.
struct Journey {
  Trip trip;
  at::Tensor experts_NK;  // once choices are there, as this rank's experts count
  Travel x, choices, dx, dweights;
};

// Of each choice its weight, then its expert's id as it lies in memory: they travel together.
at::Tensor choices_of(const at::Tensor& weights_TK, const at::Tensor& experts_TK) {
  return at::cat({weights_TK, experts_TK.to(at::kInt).view(at::kFloat)}, 1);
}

class SplitExperts : public Experts, public TokenExperts3 {
 public:
  SplitExperts(std::shared_ptr<Experts> inner, std::shared_ptr<const ExpertRanks> ranks, double imbalance,
               std::shared_ptr<OneSided> one_sided)
      : inner_(std::move(inner)),
        ranks_(std::move(ranks)),
        exchange_(std::make_shared<const Exchange>(ranks_, std::move(one_sided))),
        imbalance_(imbalance) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  double planned_rows(double rows) const override { return inner_->planned_rows(rows * imbalance_); }
  double kept_rows(double rows, at::DeviceType device) const override {
    const double tokens = rows / static_cast<double>(ranks_->chosen) *
                          ranks_of_token(ranks_->experts, ranks_->size, ranks_->chosen) * imbalance_;
    return drivetrain::kept_rows(*inner_, rows * imbalance_, device) + tokens;
  }

  bool takes_tokens(at::DeviceType) const override { return true; }

  // Tokens leave in one node and arrive in another: what `meanwhile` computes in between, and its backward, is computed
  // while rows travel.
  at::Tensor of_tokens(const at::Tensor& x, const Routing& routing, StepContext& ctx,
                       const std::function<void()>& meanwhile, const std::vector<int64_t>&) override {
    const auto journey = std::make_shared<Journey>();
    journey->trip = exchange_->trip(routing.experts_TK);
    // A router may give tokens of another rank more choices: those that are missing here are nobody's.
    const int64_t missing = journey->trip.chosen - routing.experts_TK.size(1);
    const at::Tensor experts = at::constant_pad_nd(routing.experts_TK, {0, missing}, -1);
    const Tensors left =
        leave(x, at::constant_pad_nd(routing.weights_TK.to(at::kFloat), {0, missing}, 0), experts, journey);
    meanwhile();
    const Tensors here = arrive(left, journey);
    const at::Tensor y = sum_of_experts(
        *inner_, ranks_->experts, here[0], {journey->experts_NK, here[1]}, ctx, [] {}, journey->trip.used,
        journey->trip.received);
    return go_home(y, here, journey);
  }

  // Each row is a token with one choice.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) override {
    const int64_t R = x.size(0);
    const at::Tensor expert = at::searchsorted(counts.cumsum(0), at::arange(R, counts.options()), false, true);
    const at::Tensor nobody = at::zeros_like(expert).sub_(1);
    return of_tokens(x,
                     {at::where(expert.lt(counts.size(0)), expert, nobody).view({R, 1}),
                      at::ones({R, 1}, x.options().dtype(at::kFloat))},
                     ctx, [] {}, {});
  }

 private:
  // Every rank takes part in every exchange, also one that got no row: so all nodes depend on the layer's parameters
  // and on each other, whatever the layer inside records.
  Tensors leave(const at::Tensor& x, const at::Tensor& weights, const at::Tensor& experts,
                const std::shared_ptr<Journey>& journey) const {
    Tensors inputs = {x, weights};
    for (const ParamPtr& param : params()) inputs.push_back(param->tensor);
    const size_t many = inputs.size();
    return differentiable(
        inputs,
        [&](const Tensors& in) {
          journey->x = exchange_->there(in[0], journey->trip);
          journey->choices = exchange_->there(choices_of(in[1], experts), journey->trip);
          return Tensors{journey->x.coming, journey->choices.coming.narrow(1, 0, weights.size(1))};
        },
        [journey, exchange = exchange_, many](const Tensors&) {
          Tensors gradients(many);
          gradients[0] = exchange->sum_home(wait_for(journey->dx), journey->trip);
          gradients[1] = exchange->sum_home(wait_for(journey->dweights), journey->trip);
          return gradients;
        });
  }

  Tensors arrive(const Tensors& left, const std::shared_ptr<Journey>& journey) const {
    return differentiable(
        left,
        [&](const Tensors&) {
          const int64_t K = left[1].size(1);
          const at::Tensor choices = wait_for(journey->choices), ids = choices.narrow(1, K, K).contiguous();
          journey->experts_NK = exchange_->own(ids.view(at::kInt).to(at::kLong));
          return Tensors{wait_for(journey->x).variable_data(), choices.narrow(1, 0, K).contiguous()};
        },
        [journey, exchange = exchange_, D = left[0].size(1), K = left[1].size(1), x = left[0].options(),
         weights = left[1].options()](const Tensors& dy) {
          const int64_t N = journey->trip.rows_received();
          const at::Tensor dx = dy[0].defined() ? dy[0] : at::zeros({N, D}, x),
                           dweights = dy[1].defined() ? dy[1] : at::zeros({N, K}, weights);
          journey->dx = exchange->back(dx, journey->trip);
          journey->dweights = exchange->back(dweights, journey->trip);
          return Tensors{dx, dweights};  // `leave` gives what comes home of them
        });
  }

  at::Tensor go_home(const at::Tensor& y, const Tensors& here, const std::shared_ptr<Journey>& journey) const {
    return differentiable(
        {y, here[0], here[1]},
        [&](const Tensors& in) {
          Travel home = exchange_->back(in[0], journey->trip);
          return Tensors{exchange_->sum_home(wait_for(home), journey->trip)};
        },
        [journey, exchange = exchange_](const Tensors& dy) {
          Travel gradients = exchange->there(dy[0], journey->trip);
          return Tensors{wait_for(gradients), {}, {}};
        })[0];
  }

  const std::shared_ptr<Experts> inner_;
  const std::shared_ptr<const ExpertRanks> ranks_;
  const std::shared_ptr<const Exchange> exchange_;
  const double imbalance_;
};

}  // namespace

std::shared_ptr<Experts> split_experts(std::shared_ptr<Experts> own, std::shared_ptr<const ExpertRanks> ranks,
                                       double imbalance, std::shared_ptr<OneSided> one_sided) {
  return std::make_shared<SplitExperts>(std::move(own), std::move(ranks), imbalance, std::move(one_sided));
}

}  // namespace drivetrain::all_to_all
