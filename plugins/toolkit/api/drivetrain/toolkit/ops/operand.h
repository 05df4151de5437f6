// An operand of a product: a tensor, or the operation that computes it, for products that read their operands once and
// write them in another form (casts to 8 bits, kernels/eight_bits). They compute it in that pass where a kernel can.
//
// Thread and stream: as ops.h. Cheap to copy: it holds the tensors that the operation reads.
#pragma once

#include <drivetrain/toolkit/ops/ops.h>
#include "kernels/eight_bits/cast_from.h"

namespace drivetrain::ops {

class Operand {
 public:
  Operand(const at::Tensor& tensor) : x_(tensor) {}  // of any shape [..., K]; NOLINT(google-explicit-constructor)
  // As the functions of ops.h have it. The gradient of the activation's bias is not computed. Of `kept` y is not read.
  static Operand activation(Activation kind, const at::Tensor& x, const at::Tensor& bias);
  static Operand activation_backward(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                     const at::Tensor& bias);
  static Operand norm(const Normed& kept, const at::Tensor& weight, const at::Tensor& bias, const NormArgs& args);

  bool is_tensor() const { return kind_ == Kind::itself; }
  // The tensor; computed anew by each call where it is not there.
  at::Tensor value() const;
  std::vector<int64_t> sizes() const;
  int64_t columns() const;  // K
  int64_t rows() const;     // all before K
  at::ScalarType scalar_type() const { return x_.scalar_type(); }

  // For kernels that compute it: whether they do so there, what they compute it from, and `x` of it.
  bool fits_cast(bool e5m2) const;
  kernels::CastFrom cast_from() const;
  const at::Tensor& x() const { return x_; }

 private:
  using Kind = kernels::CastFrom::Kind;
  Operand(Kind kind, const at::Tensor& x) : kind_(kind), x_(x.contiguous()) {}

  Kind kind_ = Kind::itself;
  Activation activation_ = Activation::gelu_tanh;
  NormArgs args_;
  at::Tensor x_, dy_, weight_, bias_, mean_, rstd_;
};

}  // namespace drivetrain::ops
