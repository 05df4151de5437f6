// The experts of one rank among those of all. Source: Lepikhin et al. 2020, "GShard", section 3; without a limit per
// expert, as in Gale et al. 2022, "MegaBlocks".
#include <ATen/ops/zeros.h>

#include <memory>
#include <utility>

#include <drivetrain/toolkit/units/differentiable.h>

#include "all_to_all.h"

namespace drivetrain::all_to_all {
namespace {

// R rows of this rank's tokens, D hidden.
class SplitExperts : public Experts {
 public:
  SplitExperts(std::shared_ptr<Experts> inner, std::shared_ptr<const Exchange> exchange, double imbalance)
      : inner_(std::move(inner)), exchange_(std::move(exchange)), imbalance_(imbalance) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  double planned_rows(double rows) const override { return inner_->planned_rows(rows * imbalance_); }

  // The backward of each exchange is the other one, and every rank takes part in both, also one that got no row: so
  // both depend on the layer's parameters and on each other, whatever the layer inside records.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) override {
    const auto splits = std::make_shared<const Splits>(exchange_->splits(counts));
    const auto exchange = exchange_;
    const int64_t R = x.size(0);
    Tensors inputs = {x};
    for (const ParamPtr& param : params()) inputs.push_back(param->tensor);
    const size_t many = inputs.size();
    const at::Tensor here = differentiable(
        inputs, [&](const Tensors& in) { return Tensors{exchange->there(in[0], *splits)}; },
        [=, D = x.size(1), options = x.options()](const Tensors& dy) {
          const at::Tensor d = dy[0].defined() ? dy[0] : at::zeros({splits->rows_received(), D}, options);
          Tensors gradients(many);
          gradients[0] = exchange->back(d, *splits, R);
          return gradients;
        })[0];
    const at::Tensor y = inner_->forward(here, exchange->counts_here(*splits, x), ctx);
    return differentiable(
        {y, here}, [&](const Tensors& in) { return Tensors{exchange->back(in[0], *splits, R)}; },
        [=](const Tensors& dy) {
          return Tensors{exchange->there(dy[0], *splits), {}};
        })[0];
  }

 private:
  const std::shared_ptr<Experts> inner_;
  const std::shared_ptr<const Exchange> exchange_;
  const double imbalance_;
};

}  // namespace

std::shared_ptr<Experts> split_experts(std::shared_ptr<Experts> own, std::shared_ptr<const ExpertRanks> ranks,
                                       double imbalance) {
  return std::make_shared<SplitExperts>(std::move(own), std::make_shared<const Exchange>(std::move(ranks)), imbalance);
}

}  // namespace drivetrain::all_to_all
