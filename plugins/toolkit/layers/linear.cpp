// Weight gradients by the product itself into their slots.
#include <drivetrain/toolkit/layers/linear.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <functional>

#include <drivetrain/toolkit/layers/short_product.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {
namespace {

// What LibTorch's CUDA products take for a result that is wider than their operands:
// float32 from bfloat16 or float16, both operands of one type, the summand float32 as well.
bool widens_by_itself(const at::Tensor& slot, const at::Tensor& dy, const at::Tensor& x) {
  const at::ScalarType type = dy.scalar_type();
  return dy.is_cuda() && slot.scalar_type() == at::kFloat && (type == at::kBFloat16 || type == at::kHalf) &&
         x.scalar_type() == type;
}

// slot := or += dy^T x in float32 sums: the result never exists in 16 bits.
void add_widened(at::Tensor& slot, bool add, const at::Tensor& dy_NO, const at::Tensor& x_NI) {
  if (add)
    at::addmm_out(slot, slot, dy_NO.t(), x_NI, at::kFloat);
  else
    at::mm_out(slot, dy_NO.t(), x_NI, at::kFloat);
}

}  // namespace

void accumulate_weight_grad(Param& weight, const at::Tensor& dy_NO, const at::Tensor& x_NI) {
  auto [slot, add] = weight.write_grad();
  if (widens_by_itself(slot, dy_NO, x_NI)) {
    add_widened(slot, add, dy_NO, x_NI);
  } else if (add_short_product(slot, add, dy_NO.t(), x_NI)) {
    return;
  } else if (slot.scalar_type() != dy_NO.scalar_type()) {
    // Wide copies of the operands, so that no product of the weight's size is rounded to 16 bits first.
    const at::Tensor dy = dy_NO.to(slot.scalar_type()), x = x_NI.to(slot.scalar_type());
    if (add)
      slot.addmm_(dy.t(), x);
    else
      at::mm_out(slot, dy.t(), x);
  } else if (add) {
    slot.addmm_(dy_NO.t(), x_NI);
  } else {
    at::mm_out(slot, dy_NO.t(), x_NI);
  }
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
        std::vector<int64_t> shape = in[0].sizes().vec();
        shape.back() = in[1].size(0);
        return Tensors{product(in[0].reshape({-1, in[1].size(1)}), in[1], bias ? in[2] : at::Tensor()).view(shape)};
      },
      [x = x.detach(), w, weight, bias, wants_dx, work = WeightWork::current()](const Tensors& dy) {
        const at::Tensor dy_NO = dy[0].reshape({-1, w.size(0)});
        Tensors gradients(bias ? 3 : 2);
        if (wants_dx) gradients[0] = product_backward(dy_NO, w).view(x.sizes());
        if (weight->trainable) work->run([=] { accumulate_weight_grad(*weight, dy_NO, x.reshape({-1, w.size(1)})); });
        if (bias && bias->trainable) ops::accumulate_bias_grad(*bias, dy_NO);
        return gradients;
      })[0];
}

namespace {

at::Tensor look_up(const at::Tensor& ids, const ParamPtr& weight,
                   const std::function<at::Tensor(const at::Tensor&)>& rows) {
  const at::Tensor w = weight->tensor;
  return differentiable(
      {w}, [&](const Tensors& in) { return Tensors{rows(in[0])}; },
      [ids, weight](const Tensors& dy) {
        if (weight->trainable) ops::accumulate_embedding_grad(*weight, ids, dy[0]);  // skips ids out of range
        return Tensors(1);
      })[0];
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const ParamPtr& weight) {
  return look_up(ids, weight, [&](const at::Tensor& w) { return at::embedding(w, ids); });
}

at::Tensor embedding_of_part(const at::Tensor& ids, const ParamPtr& weight) {
  return look_up(ids, weight, [&](const at::Tensor& w) {
    const at::Tensor flat = ids.reshape({-1});
    std::vector<int64_t> sizes = ids.sizes().vec();
    sizes.push_back(w.size(1));
    at::Tensor rows = at::index_select(w, 0, flat.clamp(0, std::max<int64_t>(w.size(0) - 1, 0)));
    rows.masked_fill_(at::bitwise_or(flat.lt(0), flat.ge(w.size(0))).unsqueeze(1), 0);
    return rows.view(sizes);
  });
}

}  // namespace drivetrain
