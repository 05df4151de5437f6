#include <drivetrain/toolkit/layers/attend.h>

#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {

at::Tensor attend(const std::shared_ptr<const Attention>& attention, const at::Tensor& q, const at::Tensor& k,
                  const at::Tensor& v, const AttentionArgs& args) {
  auto state = std::make_shared<AttentionState>();
  const auto forward = [&](const Tensors& x) {
    *state = attention->forward(x[0].detach(), x[1].detach(), x[2].detach(), args);
    // An alias: were `out` itself in the state, the graph would own itself and a graph without backward never be freed.
    return Tensors{state->out.detach()};
  };
  return differentiable({q, k, v}, forward, [state, args, attention](const Tensors& dout) {
    return attention->backward(dout[0], *state, args);
  })[0];
}

}  // namespace drivetrain
