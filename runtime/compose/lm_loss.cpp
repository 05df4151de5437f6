#include "compose/lm_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/mm.h>

#include <drivetrain/differentiable.h>
#include <drivetrain/weight_grad.h>

namespace drivetrain {
namespace {

// What backward needs: softmax(logits) - onehot(label), rows that do not count zero.
struct LossState {
  at::Tensor gradient_NV;
};

at::Tensor loss_forward(const at::Tensor& x_ND, const at::Tensor& w, const at::Tensor& labels_N, LossState& state) {
  at::Tensor logits = at::mm(x_ND, w.t());
  if (logits.scalar_type() != at::kFloat && logits.scalar_type() != at::kDouble) logits = logits.to(at::kFloat);
  const at::Tensor counts = labels_N.ne(-100);
  const at::Tensor column = labels_N.clamp_min(0).unsqueeze(1);
  const at::Tensor of_label = at::gather(logits, 1, column).squeeze(1);
  const at::Tensor top = at::amax(logits, 1);
  at::_softmax_out(logits, logits, 1, false);
  // The largest probability is 1 / sum exp(logit - top): the log-sum-exp without another exponential pass.
  const at::Tensor lse = top.to(at::kDouble) - at::amax(logits, 1).to(at::kDouble).log();
  const at::Tensor loss = (lse - of_label.to(at::kDouble)).mul(counts).sum();

  logits.scatter_add_(1, column, at::full({column.size(0), 1}, -1.0, logits.options()));
  if (!counts.all().item<bool>()) logits.mul_(counts.unsqueeze(1));
  state.gradient_NV = std::move(logits);
  return loss;
}

}  // namespace

at::Tensor lm_loss(const at::Tensor& x, const ParamPtr& weight, const at::Tensor& labels) {
  const at::Tensor w = weight->tensor;
  const auto state = std::make_shared<LossState>();
  const bool wants_dx = x.requires_grad();
  return differentiable(
      {x, w},
      [&](const Tensors& in) {
        return Tensors{loss_forward(in[0].reshape({-1, w.size(1)}), in[1], labels.reshape({-1}), *state)};
      },
      [x = x.detach(), w, weight, wants_dx, state](const Tensors& dy) {
        const at::Tensor g = std::move(state->gradient_NV).to(x.scalar_type());
        const at::Tensor scale = dy[0].to(x.scalar_type());
        Tensors gradients(2);
        // The scalar dy is applied to the small operands, not to the logits.
        if (wants_dx) gradients[0] = at::mm(g, w).mul_(scale).view(x.sizes());
        if (weight->trainable) accumulate_weight_grad(*weight, g, x.reshape({-1, w.size(1)}).mul(scale));
        return gradients;
      })[0];
}

}  // namespace drivetrain
