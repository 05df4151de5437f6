// For the test of fused blocks: linear layers that have GELU in their products as plain ones have it on CUDA, and count
// the calls.
#pragma once

#include <ATen/ops/gelu.h>

#include <functional>

#include <drivetrain/testkit/strategy/layers.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/gelu_linear.h>
#include <drivetrain/toolkit/ops/ops.h>

namespace drivetrain::test {

// A layer as it is on CUDA, anywhere and of any type.
struct GeluAnywhere : OtherLinear, GeluLinear2 {
  using OtherLinear::OtherLinear;
  bool has_gelu(at::DeviceType, at::ScalarType) const override { return true; }
  bool finds_gelu(int64_t rows, bool backward) const override { return !missing || !missing(rows, backward); }
  at::Tensor apply_gelu(const at::Tensor& x, at::Tensor& pre) const override {
    ++forwards;
    pre = inner->apply(x, {}, nullptr);
    return at::gelu(pre, "tanh");
  }
  at::Tensor apply_backward_gelu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& pre,
                                 WeightWork& work) const override {
    ++backwards;
    return ops::activation_backward(ops::Activation::gelu_tanh, pre, inner->apply_backward(dy, x, {}, work), nullptr);
  }
  static inline int forwards = 0, backwards = 0;
  static inline std::function<bool(int64_t rows, bool backward)> missing;  // what the GPU has no kernel for
};
struct GeluLayers : DecoratedLayers {
  GeluLayers(std::shared_ptr<LayerFactory> layers, std::string which)
      : DecoratedLayers(std::move(layers)), which(std::move(which)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    const auto made = inner_->linear(spec);
    return spec.name.find(which) == std::string::npos ? made : std::make_shared<GeluAnywhere>(made);
  }
  const std::string which;
};

}  // namespace drivetrain::test
