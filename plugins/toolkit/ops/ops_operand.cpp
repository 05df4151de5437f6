#include <drivetrain/toolkit/ops/operand.h>

#include <algorithm>

#include <drivetrain/toolkit/ops/kernel_call.h>

namespace drivetrain::ops {

Operand Operand::activation(Activation kind, const at::Tensor& x, const at::Tensor& bias) {
  Operand operand(Kind::activation, x);
  operand.activation_ = kind, operand.bias_ = bias;
  return operand;
}

Operand Operand::activation_backward(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                     const at::Tensor& bias) {
  Operand operand(Kind::activation_backward, x);
  operand.activation_ = kind, operand.dy_ = dy.contiguous(), operand.bias_ = bias;
  return operand;
}

Operand Operand::norm(const Normed& kept, const at::Tensor& weight, const at::Tensor& bias, const NormArgs& args) {
  Operand operand(Kind::norm, kept.sum);
  operand.args_ = args, operand.weight_ = weight, operand.bias_ = bias;
  operand.mean_ = kept.mean, operand.rstd_ = kept.rstd;
  return operand;
}

at::Tensor Operand::value() const {
  switch (kind_) {
    case Kind::itself:
      return x_;
    case Kind::activation:
      return ops::activation(activation_, x_, bias_);
    case Kind::activation_backward:
      return ops::activation_backward(activation_, x_, dy_, bias_);
    case Kind::norm:
      return norm_again({{}, x_, mean_, rstd_}, weight_, bias_, args_);
  }
  return {};
}

std::vector<int64_t> Operand::sizes() const {
  std::vector<int64_t> sizes = x_.sizes().vec();
  sizes.back() = columns();
  return sizes;
}

int64_t Operand::columns() const { return x_.size(-1) / (kind_ == Kind::activation && is_gated(activation_) ? 2 : 1); }

int64_t Operand::rows() const { return x_.numel() / std::max<int64_t>(x_.size(-1), 1); }

bool Operand::fits_cast(bool e5m2) const {
  const auto like_x = [&](const at::Tensor& t) { return !t.defined() || t.scalar_type() == x_.scalar_type(); };
  return !is_tensor() && kernels::kWithCuda && x_.is_cuda() && has_kernel(x_) && like_x(weight_) && like_x(bias_) &&
         (kind_ != Kind::norm || weight_.defined()) && (kind_ == Kind::activation_backward || !e5m2) &&
         kernels::cast_from_fits(cast_from(), columns(), kernel_dtype(x_));
}

kernels::CastFrom Operand::cast_from() const {
  kernels::CastFrom from;
  from.kind = kind_, from.activation = static_cast<kernels::Activation>(activation_);
  from.offset = static_cast<float>(args_.offset);
  from.dy = in(dy_), from.weight = in(weight_), from.bias = in(bias_);
  from.mean = in<float>(mean_), from.rstd = in<float>(rstd_);
  return from;
}

}  // namespace drivetrain::ops
