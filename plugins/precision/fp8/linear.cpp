#include "linear.h"

#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/linear.h>

namespace drivetrain::fp8 {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

class Fp8Product final : public LinearProduct {
 public:
  Fp8Product(const std::string& name, ScalingPtr scaling)
      : scaling_(std::move(scaling)), layer_(scaling_->add_layer(name)) {}

  at::Tensor forward(const at::Tensor& x, const Param& weight, const at::Tensor& bias) const override {
    return product(cast(Role::input, x), scaling_->weight(layer_, weight.tensor.detach()), x.scalar_type(), Sums::fast,
                   bias);
  }

  // What is cast again has the scale that it had in forward: scales change between steps alone.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, const ParamPtr& weight, bool wants_dx,
                      WeightWork& work) const override {
    const bool turned = weight->trainable && scaling_->recipe().wgrad;
    const Both scaled_dy =
        turned ? scaling_->cast_both(layer_, Role::gradient, dy) : Both{cast(Role::gradient, dy), {}};
    at::Tensor dx;
    if (wants_dx)
      dx = product(scaled_dy.rows, scaling_->weight_transposed(layer_, weight->tensor.detach()), dy.scalar_type(),
                   Sums::precise);
    if (weight->trainable) write_weight_grad(scaled_dy.columns, dy, x, weight, work);
    return dx;
  }

 private:
  Scaled cast(Role role, const at::Tensor& t) const { return scaling_->cast(layer_, role, t); }

  // dy_ON: dy transposed, in 8 bits.
  void write_weight_grad(const Scaled& dy_ON, const at::Tensor& dy_NO, const at::Tensor& x, const ParamPtr& weight,
                         WeightWork& work) const {
    if (!scaling_->recipe().wgrad)
      return work.run([weight, dy_NO, x] { accumulate_weight_grad(*weight, dy_NO, rows_of(x)); });
    work.run([scaling = scaling_, layer = layer_, weight, dy_ON, x] {
      const Scaled x_IN = scaling->cast_transposed(layer, Role::input, rows_of(x));
      accumulate_grad(*weight, product(dy_ON, x_IN, at::kFloat, Sums::precise));
    });
  }

  const ScalingPtr scaling_;
  const int64_t layer_;
};

class Fp8Layers final : public DecoratedLayers {
 public:
  Fp8Layers(std::shared_ptr<LayerFactory> inner, ScalingPtr scaling)
      : DecoratedLayers(std::move(inner)), scaling_(std::move(scaling)) {}

  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    if (spec.out == 1) return inner_->linear(spec);  // the gate of a shared expert: a number per token
    if (spec.in % kAlignment != 0 || spec.out % kAlignment != 0)
      throw fail(ErrorCode::config, "precision/fp8: layer ", spec.name, " has ", spec.in, " inputs and ", spec.out,
                 " outputs; products in 8 bits want multiples of ", kAlignment,
                 " of both. Choose hidden_size, ffn_hidden_size and heads so, or use bf16");
    if (spec.product)
      throw fail(ErrorCode::config, "precision/fp8: the products of layer ", spec.name,
                 " are another plugin's already, and two cannot compute them. Remove that plugin, or use bf16");
    LinearSpec in_8_bits = spec;
    in_8_bits.product = std::make_shared<Fp8Product>(spec.name, scaling_);
    return inner_->linear(in_8_bits);
  }

 private:
  const ScalingPtr scaling_;
};

}  // namespace

std::shared_ptr<LayerFactory> make_layers(std::shared_ptr<LayerFactory> inner, ScalingPtr scaling) {
  return std::make_shared<Fp8Layers>(std::move(inner), std::move(scaling));
}

}  // namespace drivetrain::fp8
