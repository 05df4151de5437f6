// Weight gradients by the product itself into their slots.
#include <drivetrain/weight_grad.h>

#include <ATen/Parallel.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <drivetrain/differentiable.h>
#include <drivetrain/error.h>

namespace drivetrain {
namespace {

template <class T>
void add_rows(T* out, const T* rows, const int64_t* ids, int64_t count, int64_t dim, int64_t vocabulary) {
  // Threads share the columns, so every row is added in order of position whatever their number.
  at::parallel_for(0, dim, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= vocabulary) continue;  // the forward pass has refused it already
      T* to = out + ids[i] * dim;
      const T* from = rows + i * dim;
      for (int64_t d = begin; d < end; ++d) to[d] += from[d];
    }
  });
}

void accumulate_rows(Param& weight, const at::Tensor& dy, const at::Tensor& ids) {
  at::Tensor slot = weight.grad;
  if (weight.grad_fresh) slot.zero_();
  weight.grad_fresh = false;
  const at::Tensor flat_ids = ids.reshape({-1}).contiguous();
  const at::Tensor rows = dy.reshape({flat_ids.numel(), -1}).to(slot.scalar_type()).contiguous();
  if (!slot.is_cpu()) {
    slot.index_add_(0, flat_ids, rows);
    return;
  }
  const auto add = [&](auto element) {
    using T = decltype(element);
    add_rows<T>(slot.mutable_data_ptr<T>(), rows.const_data_ptr<T>(), flat_ids.const_data_ptr<int64_t>(), flat_ids.numel(),
                rows.size(1), slot.size(0));
  };
  if (slot.scalar_type() == at::kFloat) add(float{});
  else if (slot.scalar_type() == at::kDouble) add(double{});
  else slot.index_add_(0, flat_ids, rows);
}

}  // namespace

void accumulate_weight_grad(Param& weight, const at::Tensor& dy_NO, const at::Tensor& x_NI) {
  at::Tensor slot = weight.grad;
  if (slot.scalar_type() != dy_NO.scalar_type()) return accumulate_grad(weight, at::mm(dy_NO.t(), x_NI));
  if (weight.grad_fresh) at::mm_out(slot, dy_NO.t(), x_NI);
  else slot.addmm_(dy_NO.t(), x_NI);
  weight.grad_fresh = false;
}

at::Tensor linear(const at::Tensor& x, const ParamPtr& weight, const ParamPtr& bias) {
  const at::Tensor w = weight->tensor;
  const at::Tensor b = bias ? bias->tensor : at::Tensor();
  Tensors inputs = {x, w};
  if (bias) inputs.push_back(b);
  const bool wants_dx = x.requires_grad();
  return differentiable(
      inputs,
      [&](const Tensors& in) {
        return Tensors{bias ? at::linear(in[0], in[1], in[2]) : at::linear(in[0], in[1])};
      },
      [x = x.detach(), w, weight, bias, wants_dx](const Tensors& dy) {
        const at::Tensor dy_NO = dy[0].reshape({-1, w.size(0)});
        Tensors gradients(bias ? 3 : 2);
        if (wants_dx) gradients[0] = at::mm(dy_NO, w).view(x.sizes());
        if (weight->trainable) accumulate_weight_grad(*weight, dy_NO, x.reshape({-1, w.size(1)}));
        if (bias && bias->trainable) accumulate_grad(*bias, at::sum(dy_NO, 0));
        return gradients;
      })[0];
}

at::Tensor embedding(const at::Tensor& ids, const ParamPtr& weight) {
  const at::Tensor w = weight->tensor;
  return differentiable(
      {w}, [&](const Tensors& in) { return Tensors{at::embedding(in[0], ids)}; },
      [ids, weight](const Tensors& dy) {
        if (weight->trainable) accumulate_rows(*weight, dy[0], ids);
        return Tensors(1);
      })[0];
}

}  // namespace drivetrain
