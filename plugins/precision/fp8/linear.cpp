#include "linear.h"

#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/operand_linear.h>

namespace drivetrain::fp8 {
namespace {

Operand rows_of(const Operand& x) {
  return x.is_tensor() && x.x().dim() != 2 ? Operand(x.x().reshape({-1, x.columns()})) : x;
}

class Fp8Product final : public LinearProduct, public OperandProduct1 {
 public:
  Fp8Product(const std::string& name, ScalingPtr scaling)
      : scaling_(std::move(scaling)), layer_(scaling_->add_layer(name)) {}

  // Weights' gradients in 16 bits would have to compute them once more.
  bool takes_operands() const override { return scaling_->recipe().wgrad; }

  at::Tensor forward(const at::Tensor& x, const Param& weight, const at::Tensor& bias) const override {
    return forward(Operand(x), weight, bias, nullptr);
  }
  // Keeps x as the gradient of the weight reads it: transposed, a byte per element.
  at::Tensor forward(const Operand& x, const Param& weight, const at::Tensor& bias, KeptOperand* kept) const override {
    const bool both = kept && weight.trainable && scaling_->recipe().wgrad;
    const Both scaled_x = both ? scaling_->cast_both(layer_, Role::input, rows_of(x)) : Both{cast(Role::input, x), {}};
    if (both) *kept = std::make_shared<const Scaled>(scaled_x.columns);
    return product(scaled_x.rows, scaling_->weight(layer_, weight.tensor.detach()), x.scalar_type(), Sums::fast, bias);
  }

  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, const ParamPtr& weight, bool wants_dx,
                      WeightWork& work) const override {
    return backward(Operand(dy), Operand(x), nullptr, weight, wants_dx, work);
  }
  // What is cast again has the scale that it had in forward: scales change between steps alone.
  at::Tensor backward(const Operand& dy, const Operand& x, const KeptOperand& kept, const ParamPtr& weight,
                      bool wants_dx, WeightWork& work) const override {
    const bool turned = weight->trainable && scaling_->recipe().wgrad;
    const Both scaled_dy =
        turned ? scaling_->cast_both(layer_, Role::gradient, rows_of(dy)) : Both{cast(Role::gradient, dy), {}};
    at::Tensor dx;
    if (wants_dx)
      dx = product(scaled_dy.rows, scaling_->weight_transposed(layer_, weight->tensor.detach()), dy.scalar_type(),
                   Sums::precise);
    if (weight->trainable) write_weight_grad(scaled_dy.columns, dy, x, kept, weight, work);
    return dx;
  }

 private:
  Scaled cast(Role role, const Operand& t) const { return scaling_->cast(layer_, role, rows_of(t)); }

  // dy_ON: dy transposed, in 8 bits. An x that is there may have elements still on their way, which `work` alone waits
  // for; one that is computed is cast at once, which is less to keep than what it is computed from.
  void write_weight_grad(const Scaled& dy_ON, const Operand& dy, const Operand& x, const KeptOperand& kept,
                         const ParamPtr& weight, WeightWork& work) const {
    if (!scaling_->recipe().wgrad)
      return work.run([weight, dy, x] { accumulate_weight_grad(*weight, rows_of(dy).value(), rows_of(x).value()); });
    const auto multiply = [weight, dy_ON](const Scaled& x_IN) {
      accumulate_grad(*weight, product(dy_ON, x_IN, at::kFloat, Sums::precise));
    };
    if (kept || !x.is_tensor()) {
      const Scaled x_IN =
          kept ? *static_cast<const Scaled*>(kept.get()) : scaling_->cast_transposed(layer_, Role::input, x);
      return work.run([multiply, x_IN] { multiply(x_IN); });
    }
    work.run([multiply, scaling = scaling_, layer = layer_, x] {
      multiply(scaling->cast_transposed(layer, Role::input, rows_of(x)));
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
