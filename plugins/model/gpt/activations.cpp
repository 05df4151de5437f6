#include "activations.h"

#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain::gpt {

at::Tensor activate(const std::string& name, const at::Tensor& x) {
  const ops::Activation kind = ops::activation_of(name);
  return differentiable(
      {x}, [&](const Tensors& in) { return Tensors{ops::activation(kind, in[0], {})}; },
      [kind, x = x.detach()](const Tensors& dy) {
        return Tensors{ops::activation_backward(kind, x, dy[0], nullptr)};
      })[0];
}

}  // namespace drivetrain::gpt
