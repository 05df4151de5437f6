#include <drivetrain/toolkit/layers/chunked_loss.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {
namespace {

at::Tensor positions_of(const ChunkedLoss& parts, const at::Tensor& x) {
  return parts.all_positions ? parts.all_positions(x) : x;
}

// x w^T. On a device, rows of a vocabulary that is no multiple of 8 lie further apart than they are long: a product
// whose operand has rows that begin anywhere takes a slower path, and logits are an operand of both that follow.
at::Tensor logits_of(const at::Tensor& x_ND, const at::Tensor& w) {
  const int64_t V = w.size(0);
  if (x_ND.is_cpu() || V % 8 == 0) return product(x_ND, w);
  const at::NoGradGuard off;
  at::Tensor logits = at::empty({x_ND.size(0), ops::aligned_columns(V)}, x_ND.options()).narrow(1, 0, V);
  at::mm_out(logits, x_ND, w.t());
  return logits;
}

// Calls visit(first row, rows, logits of these rows): those of one chunk at a time.
template <class Visit>
void each_chunk(const at::Tensor& x_ND, const at::Tensor& w, const Visit& visit) {
  const int64_t N = x_ND.size(0), most = ops::loss_rows_at_once(x_ND, w);
  for (int64_t first = 0; first < N; first += most) {
    const int64_t rows = std::min(most, N - first);
    at::Tensor logits = logits_of(x_ND.narrow(0, first, rows), w);
    visit(first, rows, logits);
  }
}

at::Tensor loss_only(const at::Tensor& x_BSD, const at::Tensor& w, const at::Tensor& labels_N,
                     const ChunkedLoss& parts) {
  at::Tensor loss = at::zeros({}, x_BSD.options().dtype(at::kDouble));
  each_chunk(positions_of(parts, x_BSD).reshape({-1, w.size(1)}), w,
             [&](int64_t first, int64_t rows, at::Tensor& logits) {
               loss.add_(parts.loss_of(logits, labels_N.narrow(0, first, rows), false));
             });
  return loss;
}

// Adds to `loss` and returns dx, undefined if not wanted. `dy`: the loss's own gradient, applied to the small operands.
at::Tensor loss_with_gradients(const at::Tensor& given_BSD, Param& weight, const at::Tensor& labels_N,
                               const at::Tensor& dy, bool wants_dx, const ChunkedLoss& parts, at::Tensor& loss) {
  const at::Tensor x_BSD = positions_of(parts, given_BSD), w = weight.tensor.detach();
  const at::Tensor x_ND = x_BSD.reshape({-1, w.size(1)}), scale = dy.to(x_ND.scalar_type());
  at::Tensor dx = wants_dx ? at::empty_like(x_ND) : at::Tensor();
  std::function<at::Tensor()> finish_sum;
  each_chunk(x_ND, w, [&](int64_t first, int64_t rows, at::Tensor& logits) {
    const at::Tensor x = x_ND.narrow(0, first, rows);
    loss.add_(parts.loss_of(logits, labels_N.narrow(0, first, rows), true));
    if (wants_dx) {
      if (rows == x_ND.size(0))
        dx = product_backward(logits, w);
      else
        dx.narrow(0, first, rows).copy_(product_backward(logits, w));
      const bool last = first + rows == x_ND.size(0);
      if (last) dx = dx.mul_(scale).view(x_BSD.sizes());
      if (last && parts.begin_sum) finish_sum = parts.begin_sum(dx);
    }
    if (weight.trainable) accumulate_weight_grad(weight, logits, x * scale);
  });
  return finish_sum ? finish_sum() : dx;
}

}  // namespace

at::Tensor chunked_loss(const at::Tensor& x, const ParamPtr& weight, const at::Tensor& labels, ChunkedLoss parts) {
  const at::Tensor labels_N = labels.reshape({-1});
  const bool wants_dx = x.requires_grad();
  if (!at::GradMode::is_enabled() || !(wants_dx || weight->tensor.requires_grad()))
    return loss_only(x.detach(), weight->tensor.detach(), labels_N, parts);

  // Computed in backward, into the memory of what forward returns; not a number until then, so that nobody takes it
  // for a loss.
  at::Tensor loss =
      at::full({}, std::numeric_limits<double>::quiet_NaN(), x.options().dtype(at::kDouble).requires_grad(false));
  return differentiable(
      {x, weight->tensor}, [&](const Tensors&) { return Tensors{loss}; },
      [x = x.detach(), weight, labels_N, wants_dx, parts = std::move(parts), alias = loss.detach()](const Tensors& dy) {
        at::Tensor sum = alias;
        sum.zero_();
        return Tensors{loss_with_gradients(x, *weight, labels_N, dy[0], wants_dx, parts, sum), at::Tensor()};
      })[0];
}

}  // namespace drivetrain
