#include "linear.h"

#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>

namespace drivetrain::fp8 {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

class Fp8Linear final : public Linear {
 public:
  Fp8Linear(const LinearSpec& spec, ScalingPtr scaling)
      : scaling_(std::move(scaling)),
        layer_(scaling_->add_layer(spec.name)),
        weight_(std::make_shared<Param>(spec.name + ".weight", Layout::whole({spec.out, spec.in}), spec.init)) {
    if (spec.bias) bias_ = std::make_shared<Param>(spec.name + ".bias", Layout::whole({spec.out}), InitRule::zeros());
  }
  std::vector<ParamPtr> params() const override {
    return bias_ ? std::vector<ParamPtr>{weight_, bias_} : std::vector<ParamPtr>{weight_};
  }
  ParamPtr bias() const override { return bias_; }

  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor*) const override {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight_->tensor.size(0);
    const at::Tensor bias = bias_ && options.add_bias ? bias_->tensor.detach() : at::Tensor();
    return product(cast(Role::input, rows_of(x)), cast(Role::weight, weight_->tensor.detach()), x.scalar_type(),
                   Sums::fast, bias)
        .view(shape);
  }

  // What is cast again has the scale that it had in forward: scales change between steps alone.
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const at::Tensor dy_NO = rows_of(dy);
    const bool turned = weight_->trainable && scaling_->recipe().wgrad;
    const Both scaled_dy =
        turned ? scaling_->cast_both(layer_, Role::gradient, dy_NO) : Both{cast(Role::gradient, dy_NO), {}};
    at::Tensor dx;
    if (options.wants_dx)
      dx = product(scaled_dy.rows, cast_transposed(Role::weight, weight_->tensor.detach()), dy.scalar_type(),
                   Sums::precise)
               .view(x.sizes());
    if (weight_->trainable) write_weight_grad(scaled_dy.columns, dy_NO, x, work);
    if (bias_ && options.add_bias && bias_->trainable) ops::accumulate_bias_grad(*bias_, dy_NO);
    return dx;
  }

 private:
  Scaled cast(Role role, const at::Tensor& t) const { return scaling_->cast(layer_, role, t); }
  Scaled cast_transposed(Role role, const at::Tensor& t) const { return scaling_->cast_transposed(layer_, role, t); }

  // dy_ON: dy transposed, in 8 bits.
  void write_weight_grad(const Scaled& dy_ON, const at::Tensor& dy_NO, const at::Tensor& x, WeightWork& work) const {
    if (!scaling_->recipe().wgrad)
      return work.run([weight = weight_, dy_NO, x] { accumulate_weight_grad(*weight, dy_NO, rows_of(x)); });
    work.run([scaling = scaling_, layer = layer_, weight = weight_, dy_ON, x] {
      const Scaled x_IN = scaling->cast_transposed(layer, Role::input, rows_of(x));
      accumulate_grad(*weight, product(dy_ON, x_IN, at::kFloat, Sums::precise));
    });
  }

  const ScalingPtr scaling_;
  const int64_t layer_;
  const ParamPtr weight_;
  ParamPtr bias_;
};

class Fp8Layers final : public DecoratedLayers {
 public:
  Fp8Layers(std::shared_ptr<LayerFactory> inner, ScalingPtr scaling)
      : DecoratedLayers(std::move(inner)), scaling_(std::move(scaling)) {}

  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    if (spec.in % kAlignment != 0 || spec.out % kAlignment != 0)
      throw fail(ErrorCode::config, "precision/fp8: layer ", spec.name, " has ", spec.in, " inputs and ", spec.out,
                 " outputs; products in 8 bits want multiples of ", kAlignment,
                 " of both. Choose hidden_size, ffn_hidden_size and heads so, or use bf16");
    return std::make_shared<Fp8Linear>(spec, scaling_);
  }

 private:
  const ScalingPtr scaling_;
};

}  // namespace

std::shared_ptr<LayerFactory> make_layers(std::shared_ptr<LayerFactory> inner, ScalingPtr scaling) {
  return std::make_shared<Fp8Layers>(std::move(inner), std::move(scaling));
}

}  // namespace drivetrain::fp8
