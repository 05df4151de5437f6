#include "activations.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <drivetrain/differentiable.h>

namespace drivetrain::gpt {

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t F = gate_up.size(-1) / 2;
  const auto forward = [F](const Tensors& in) {
    return Tensors{at::silu(in[0].narrow(-1, 0, F)).mul_(in[0].narrow(-1, F, F))};
  };
  const auto backward = [F, x = gate_up.detach()](const Tensors& dy) {
    const at::Tensor gate = x.narrow(-1, 0, F), up = x.narrow(-1, F, F);
    const at::Tensor dx = at::empty_like(x);
    at::Tensor dgate = dx.narrow(-1, 0, F), dup = dx.narrow(-1, F, F);
    at::silu_out(dup, gate).mul_(dy[0]);
    at::silu_backward_out(dgate, at::mul(dy[0], up), gate);
    return Tensors{dx};
  };
  return differentiable({gate_up}, forward, backward)[0];
}

at::Tensor activate(const std::string& name, const at::Tensor& x) {
  if (name == "swiglu") return swiglu(x);
  return at::gelu(x, name == "gelu" ? "none" : "tanh");
}

}  // namespace drivetrain::gpt
