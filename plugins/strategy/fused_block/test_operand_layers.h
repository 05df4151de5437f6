// For the test of fused blocks: linear layers that take operands which are not computed yet, as those in 8 bits do.
#pragma once

#include <drivetrain/testkit/strategy/layers.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/operand_linear.h>

namespace drivetrain::test {

// Computes them, counts those that were not there, and keeps x.
struct OperandsAnywhere : OtherLinear, OperandLinear1 {
  using OtherLinear::OtherLinear;
  bool takes_operands() const override { return true; }
  at::Tensor apply_to(const ops::Operand& x, const Options& options, KeptOperand* kept) const override {
    inputs += !x.is_tensor();
    const TakesInstead cast(bytes(x) / 2);
    const at::Tensor value = x.value();
    if (kept) *kept = std::make_shared<const at::Tensor>(in_half ? value.to(at::kBFloat16) : value);
    return inner->apply(value, options, nullptr);
  }
  at::Tensor apply_backward_to(const ops::Operand& dy, const ops::Operand& x, const KeptOperand& kept,
                               const Options& options, WeightWork& work) const override {
    gradients += !dy.is_tensor(), restored += kept != nullptr;
    const TakesInstead casts(bytes(dy) + (kept ? 0 : bytes(x) / 2) + bytes(x));  // dy twice, x, and the result
    const at::Tensor value = kept ? static_cast<const at::Tensor*>(kept.get())->to(dy.scalar_type()) : x.value();
    return inner->apply_backward(dy.value(), value, options, work);
  }
  static int64_t bytes(const ops::Operand& x) {
    return x.rows() * x.columns() * static_cast<int64_t>(c10::elementSize(x.scalar_type()));
  }
  static inline bool in_half = false;  // what is kept has half of the bytes
  static inline int inputs = 0, gradients = 0, restored = 0;
};
struct OperandLayers : DecoratedLayers {
  OperandLayers(std::shared_ptr<LayerFactory> layers, std::string which)
      : DecoratedLayers(std::move(layers)), which(std::move(which)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    const auto made = inner_->linear(spec);
    return spec.name.find(which) == std::string::npos ? made : std::make_shared<OperandsAnywhere>(made);
  }
  const std::string which;
};

}  // namespace drivetrain::test
