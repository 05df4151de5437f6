#include <drivetrain/param.h>

#include <utility>

namespace drivetrain {

Param::Param(std::string n, Layout l, InitRule i) : name(std::move(n)), layout(std::move(l)), init(i) {}

void accumulate_grad(Param& param, const at::Tensor& gradient) {
  if (param.grad_fresh)
    param.grad.copy_(gradient);
  else
    param.grad.add_(gradient);
  param.grad_fresh = false;
}

}  // namespace drivetrain
