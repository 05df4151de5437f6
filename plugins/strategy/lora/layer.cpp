#include "layer.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/step_context.h>
#include <drivetrain/toolkit/layers/linear.h>

namespace drivetrain::lora {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

AdaptedLinear::AdaptedLinear(std::shared_ptr<Linear> inner, std::vector<Adapter> adapters, double dropout)
    : inner_(std::move(inner)), adapters_(std::move(adapters)), dropout_(dropout) {}

std::vector<ParamPtr> AdaptedLinear::params() const {
  std::vector<ParamPtr> all = inner_->params();
  for (const Adapter& adapter : adapters_) all.push_back(adapter.a), all.push_back(adapter.b);
  return all;
}

void AdaptedLinear::set_keys(const StepContext& ctx) {
  keys_.clear();
  if (dropout_ == 0 || ctx.mode() != Mode::train) return;
  for (const Adapter& adapter : adapters_) {
    DropoutKeys keys{ctx.random(adapter.wish.module.path + ".lora_dropout"), ctx.positions(),
                     ctx.activation_positions()};
    keys_.push_back(std::move(keys));
  }
}

// What drop(x) is x multiplied by; undefined without dropout.
at::Tensor AdaptedLinear::factors(const Adapter& adapter, const at::Tensor& x) const {
  if (keys_.empty()) return {};
  return dropout_factors(x, dropout_, keys_[static_cast<size_t>(&adapter - adapters_.data())], adapter);
}

at::Tensor AdaptedLinear::apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const {
  const at::NoGradGuard no_grad;
  const at::Tensor y = inner_->apply(x, options, kept), y_NO = y.view({-1, y.size(-1)});
  for (const Adapter& adapter : adapters_) {
    const at::Tensor mask = factors(adapter, x);
    at::Tensor u = product(rows_of(mask.defined() ? x.mul(mask) : x), adapter.a->tensor.detach());
    u.mul_(adapter.wish.scale);
    y_NO.narrow(1, adapter.first, adapter.rows).addmm_(u, adapter.b->tensor.detach().t());
  }
  return y;
}

at::Tensor AdaptedLinear::apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                                         WeightWork& work) const {
  const at::NoGradGuard no_grad;
  at::Tensor dx = inner_->apply_backward(dy, x, options, work);
  const at::Tensor dy_NO = rows_of(dy);
  for (const Adapter& adapter : adapters_) {
    const at::Tensor dy_rows = dy_NO.narrow(1, adapter.first, adapter.rows);
    // The gradient of A drop(x).
    const at::Tensor v = product_backward(dy_rows.contiguous(), adapter.b->tensor.detach()).mul_(adapter.wish.scale);
    if (dx.defined()) {
      const at::Tensor mask = factors(adapter, x);
      if (mask.defined())
        dx.add_(product_backward(v, adapter.a->tensor.detach()).view(dx.sizes()).mul_(mask));
      else
        dx.view({-1, dx.size(-1)}).addmm_(v, adapter.a->tensor.detach());
    }
    write_gradients(adapter, dy_rows, v, x, work);
  }
  return dx;
}

// In `work`, x may be read, and the values of A may be gone if it runs later: it has few, so they are copied then.
void AdaptedLinear::write_gradients(const Adapter& adapter, const at::Tensor& dy_rows, const at::Tensor& v,
                                    const at::Tensor& x, WeightWork& work) const {
  const at::Tensor a = adapter.a->tensor.detach(), a_then = work.puts_off() ? a.clone() : a;
  const at::Tensor mask = factors(adapter, x);
  work.run([=, a_param = adapter.a, b_param = adapter.b, scale = adapter.wish.scale] {
    const at::Tensor x_NI = rows_of(mask.defined() ? x.mul(mask) : x);
    if (a_param->trainable) accumulate_weight_grad(*a_param, v, x_NI);
    if (b_param->trainable) accumulate_weight_grad(*b_param, dy_rows.contiguous(), product(x_NI, a_then).mul_(scale));
  });
}

}  // namespace drivetrain::lora
