// What goes on around the experts of a mixture.
#include <drivetrain/toolkit/layers/mixture.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {
Mixture::Mixture(const MixtureSpec& spec, const BlockLayerSpecs& specs, const std::string& activation,
                 LayerFactory& layers)
    : spec_(spec), activation_(activation), router_(layers.router(spec.router)) {
  experts_ = layers.experts(spec.experts);
  if (specs.shared_fc) shared_fc_ = layers.linear(*specs.shared_fc), shared_proj_ = layers.linear(*specs.shared_proj);
  if (specs.shared_gate) shared_gate_ = layers.linear(*specs.shared_gate);
}

std::vector<ParamPtr> Mixture::params() const {
  std::vector<ParamPtr> all;
  for (const Layer* layer : std::initializer_list<const Layer*>{router_.get(), experts_.get(), shared_fc_.get(),
                                                                shared_proj_.get(), shared_gate_.get()}) {
    if (!layer) continue;
    const std::vector<ParamPtr> own = layer->params();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

double kept_rows(const Experts& experts, double rows, at::DeviceType device) {
  const auto* const direct = dynamic_cast<const TokenExperts3*>(&experts);
  return direct ? direct->kept_rows(rows, device) : 2 * experts.planned_rows(rows);
}

at::Tensor sum_of_experts(Experts& experts, int64_t count, const at::Tensor& x_TD, const Routing& routing,
                          StepContext& ctx, const std::function<void()>& meanwhile, int64_t used,
                          const std::vector<int64_t>& of_ranks) {
  TokenExperts3* const direct = dynamic_cast<TokenExperts3*>(&experts);
  if (direct && direct->takes_tokens(x_TD.device().type()))
    return direct->of_tokens(x_TD, routing, ctx, meanwhile, of_ranks);
  SortedRows rows = sort_by_expert(routing.experts_TK, count);
  if (used >= 0) rows = without_nobody(std::move(rows), used);
  const at::Tensor y_RD = experts.forward(rows_of_tokens(x_TD, rows), rows.counts_E, ctx);
  const at::Tensor y_TD = weighted_sum(y_RD, routing.weights_TK, rows);
  meanwhile();
  return y_TD;
}

at::Tensor Mixture::forward(const at::Tensor& x_BSD, StepContext& ctx) const {
  const Routing routing = router_->forward(x_BSD, ctx);
  at::Tensor beside;
  const at::Tensor y =
      sum_of_experts(*experts_, spec_.router.experts, x_BSD.reshape({-1, x_BSD.size(-1)}), routing, ctx, [&] {
        if (shared_fc_) beside = shared(x_BSD, ctx);
      }).view(x_BSD.sizes());
  return shared_fc_ ? y + beside : y;
}

at::Tensor Mixture::shared(const at::Tensor& x_BSD, StepContext& ctx) const {
  const ops::Activation kind = ops::activation_of(activation_);
  const at::Tensor h = shared_fc_->forward(x_BSD, ctx);
  const at::Tensor act = differentiable(
      {h}, [&](const Tensors& in) { return Tensors{ops::activation(kind, in[0], {})}; },
      [kind, h = h.detach()](const Tensors& dy) {
        return Tensors{ops::activation_backward(kind, h, dy[0], nullptr)};
      })[0];
  const at::Tensor y = shared_proj_->forward(act, ctx);
  return shared_gate_ ? y * at::sigmoid(shared_gate_->forward(x_BSD, ctx)) : y;
}

}  // namespace drivetrain
