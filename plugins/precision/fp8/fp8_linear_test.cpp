// A linear layer in 8 bits, alone and with other plugins around it.
#include <ATen/ops/equal.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/terms.h>

#include "test_layer.h"

namespace drivetrain::test {
namespace {

Scaled by_own_amax(const at::Tensor& x, at::ScalarType type) {
  return fp8::cast(x, scalar(largest(type)) / absolute_maximum(x), type);
}

// By each tensor's own largest value, as the first step of the delayed recipe does as well.
TEST(Fp8Linear, its_three_products_have_rounded_operands) {
  for (const bool delayed : {false, true})
    for (const bool wgrad : {true, false}) {
      Recipe recipe;
      recipe.delayed = delayed, recipe.wgrad = wgrad;
      const Layer layer(recipe);
      const at::Tensor x = numbers({3, 7, 32}, 1).to(at::kBFloat16),
                       dy = numbers({3, 7, 48}, 2, 1e-5).to(at::kBFloat16);
      const at::Tensor y = layer.forward(x), dx = layer.backward(dy, x);
      const Scaled sx = by_own_amax(x.view({-1, 32}), at::kFloat8_e4m3fn),
                   sw = by_own_amax(layer.weight->tensor, at::kFloat8_e4m3fn),
                   sdy = by_own_amax(dy.view({-1, 48}), at::kFloat8_e5m2);
      ASSERT_EQ(y.sizes(), dy.sizes());
      ASSERT_EQ(dx.sizes(), x.sizes());
      expect_product(y.view({-1, 48}), sx, sw, layer.bias->tensor, 0x1p-8);
      expect_product(dx.view({-1, 32}), sdy, {sw.values.t(), sw.inverse}, {}, 0x1p-8);
      const Scaled one_dy = {dy.view({-1, 48}).t().to(at::kDouble), scalar(1)},
                   one_x = {x.view({-1, 32}).t().to(at::kDouble), scalar(1)};
      if (wgrad)
        expect_product(layer.weight->grad, {sdy.values.t(), sdy.inverse}, {sx.values.t(), sx.inverse}, {}, 0x1p-23);
      else
        expect_product(layer.weight->grad, one_dy, one_x, {}, 0x1p-23);
    }
}

TEST(Fp8Linear, micro_batches_add_up_in_the_slot) {
  const Layer layer({});
  const at::Tensor x = numbers({16, 32}, 1).to(at::kBFloat16), dy = numbers({16, 48}, 2).to(at::kBFloat16);
  layer.backward(dy, x);
  const at::Tensor once = layer.weight->grad.clone();
  layer.backward(dy, x);
  EXPECT_TRUE(at::equal(layer.weight->grad, once * 2));
}

// --- with other plugins

// What a decorator inside adds is not rounded: the product alone has 8 bits.
TEST(Fp8Linear, a_decorator_inside_computes_in_the_type_of_activations) {
  const auto scaling = std::make_shared<Scaling>(Recipe());
  LinearSpec spec;
  spec.name = "fc", spec.in = 32, spec.out = 48;
  const auto linear = make_layers(std::make_shared<TermLayers>(make_plain_layers(nullptr)), scaling)->linear(spec);
  const Layer bare({});
  const std::vector<ParamPtr> params = linear->params();
  ASSERT_EQ(params.size(), 4u);
  params[0]->tensor = bare.weight->tensor, params[1]->tensor = bare.bias->tensor;
  for (size_t i = 2; i < 4; ++i) params[i]->tensor = numbers(params[i]->layout.global_shape, i).to(at::kBFloat16);
  for (const ParamPtr& param : params) param->grad = at::zeros(param->layout.global_shape);
  scaling->attach({"fc"}, nullptr, nullptr, at::Device(at::kCPU));
  const at::Tensor x = numbers({16, 32}, 1).to(at::kBFloat16), dy = numbers({16, 48}, 2).to(at::kBFloat16);
  const at::Tensor &a = params[2]->tensor, &b = params[3]->tensor;
  EXPECT_TRUE(at::equal(linear->apply(x, {}, nullptr), bare.forward(x) + x.mm(a.unsqueeze(1)) * b));
  WeightWork work;
  const at::Tensor dx = linear->apply_backward(dy, x, {}, work);
  EXPECT_TRUE(at::equal(dx, bare.backward(dy, x) + dy.mm(b.unsqueeze(1)) * a));
  EXPECT_TRUE(at::equal(params[0]->grad, bare.weight->grad));
  for (size_t i = 2; i < 4; ++i) EXPECT_GT(params[i]->grad.abs().max().item<double>(), 0) << params[i]->name;
}

TEST(Fp8Linear, products_that_another_plugin_computes_are_refused) {
  const auto layers = make_layers(make_plain_layers(nullptr), std::make_shared<Scaling>(Recipe()));
  const auto twice = make_layers(layers, std::make_shared<Scaling>(Recipe()));
  LinearSpec spec;
  spec.name = "block.0.mlp.fc", spec.in = 32, spec.out = 48;
  EXPECT_NE(error_of([&] { twice->linear(spec); }).find("products of layer block.0.mlp.fc are another plugin's"),
            std::string::npos);
}

TEST(Fp8Linear, sizes_that_cannot_be_multiplied_in_8_bits_are_refused) {
  const auto layers = make_layers(make_plain_layers(nullptr), std::make_shared<Scaling>(Recipe()));
  LinearSpec spec;
  spec.name = "block.0.mlp.fc", spec.in = 32, spec.out = 100;
  const std::string message = error_of([&] { layers->linear(spec); });
  for (const char* part : {"block.0.mlp.fc has 32 inputs and 100 outputs", "multiples of 16", "use bf16"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

// The gate of a shared expert is a number per token: no product in 8 bits has one column.
TEST(Fp8Linear, a_single_output_stays_as_it_is) {
  const auto layers = make_layers(make_plain_layers(nullptr), std::make_shared<Scaling>(Recipe()));
  LinearSpec spec;
  spec.name = "block.0.mlp.shared_gate", spec.in = 20, spec.out = 1, spec.bias = false;
  const auto gate = layers->linear(spec);
  Param& weight = *gate->params().at(0);
  weight.tensor = at::full({1, 20}, 0.1f);
  EXPECT_TRUE(
      at::equal(gate->apply(at::full({3, 20}, 0.3f), {}, nullptr), product(at::full({3, 20}, 0.3f), weight.tensor)));
}

}  // namespace
}  // namespace drivetrain::test
