#include "lm_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {
namespace {

// Calls visit(first row, rows, logits of these rows): those of one chunk at a time.
template <class Visit>
void each_chunk(const at::Tensor& x_ND, const at::Tensor& w, const Visit& visit) {
  const int64_t N = x_ND.size(0), most = ops::loss_rows_at_once(x_ND, w);
  for (int64_t first = 0; first < N; first += most) {
    const int64_t rows = std::min(most, N - first);
    at::Tensor logits = product(x_ND.narrow(0, first, rows), w);
    visit(first, rows, logits);
  }
}

at::Tensor loss_only(const at::Tensor& x_ND, const at::Tensor& w, const at::Tensor& labels_N) {
  at::Tensor loss = at::zeros({}, x_ND.options().dtype(at::kDouble));
  each_chunk(x_ND, w, [&](int64_t first, int64_t rows, at::Tensor& logits) {
    loss.add_(ops::cross_entropy_(logits, labels_N.narrow(0, first, rows), false));
  });
  return loss;
}

// Loss and both gradients, chunk by chunk. `dy`: the loss's own gradient, applied to the small operands.
at::Tensor loss_with_gradients(const at::Tensor& x_ND, Param& weight, const at::Tensor& labels_N, const at::Tensor& dy,
                               bool wants_dx, at::Tensor& loss) {
  const at::Tensor w = weight.tensor.detach();
  const at::Tensor scale = dy.to(x_ND.scalar_type());
  at::Tensor dx = wants_dx ? at::empty_like(x_ND) : at::Tensor();
  each_chunk(x_ND, w, [&](int64_t first, int64_t rows, at::Tensor& logits) {
    const at::Tensor x = x_ND.narrow(0, first, rows);
    loss.add_(ops::cross_entropy_(logits, labels_N.narrow(0, first, rows), true));
    if (wants_dx) {
      if (rows == x_ND.size(0))
        dx = product_backward(logits, w);
      else
        dx.narrow(0, first, rows).copy_(product_backward(logits, w));
    }
    if (weight.trainable) accumulate_weight_grad(weight, logits, x * scale);
  });
  return wants_dx ? dx.mul_(scale) : dx;
}

}  // namespace

at::Tensor lm_loss(const at::Tensor& x, const ParamPtr& weight, const at::Tensor& labels) {
  const int64_t D = weight->tensor.size(1);
  const at::Tensor labels_N = labels.reshape({-1});
  const bool wants_dx = x.requires_grad();
  if (!at::GradMode::is_enabled() || !(wants_dx || weight->tensor.requires_grad()))
    return loss_only(x.detach().reshape({-1, D}), weight->tensor.detach(), labels_N);

  // Computed in backward, into the memory of what forward returns;
  // not a number until then, so that nobody takes it for a loss.
  at::Tensor loss =
      at::full({}, std::numeric_limits<double>::quiet_NaN(), x.options().dtype(at::kDouble).requires_grad(false));
  return differentiable(
      {x, weight->tensor}, [&](const Tensors&) { return Tensors{loss}; },
      [x = x.detach(), weight, labels_N, wants_dx, D, alias = loss.detach()](const Tensors& dy) {
        at::Tensor sum = alias;
        sum.zero_();
        const at::Tensor dx = loss_with_gradients(x.reshape({-1, D}), *weight, labels_N, dy[0], wants_dx, sum);
        return Tensors{wants_dx ? dx.view(x.sizes()) : dx, at::Tensor()};
      })[0];
}

}  // namespace drivetrain
