// precision/fp8: its numbers against float64, its scales against Transformer Engine's rules.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/mesh.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/terms.h>

#include "linear.h"
#include "scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace drivetrain::test {
namespace {

using namespace fp8;

constexpr at::ScalarType kTypes[] = {at::kFloat8_e4m3fn, at::kFloat8_e5m2};

at::Tensor numbers(std::vector<int64_t> shape, uint64_t seed, double std = 1) {
  at::Tensor out = at::empty(shape);
  fill_normal(out, seed, "numbers", 0, std);
  return out;
}

at::Tensor scalar(double value) { return at::full({}, value, at::TensorOptions(at::kFloat)); }

// --- the cast

// Every finite number of the type that is not negative, ascending: by sign, exponent and mantissa, as IEEE 754 has it.
std::vector<double> all_numbers(at::ScalarType type) {
  const int mantissa_bits = type == at::kFloat8_e4m3fn ? 3 : 2, bias = type == at::kFloat8_e4m3fn ? 7 : 15;
  std::vector<double> list;
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    if (value <= largest(type)) list.push_back(value);
  }
  return list;
}

// To nearest, ties to the even code; what is too large becomes the largest.
double rounded(double x, const std::vector<double>& list) {
  const double size = std::abs(x);
  const auto above = std::lower_bound(list.begin(), list.end(), size);
  if (above == list.end()) return std::copysign(list.back(), x);
  if (above == list.begin() || *above == size) return std::copysign(*above, x);
  const double low = *(above - 1), high = *above;
  const bool low_is_even = (above - list.begin() - 1) % 2 == 0;
  const bool up = size - low > high - size || (size - low == high - size && !low_is_even);
  return std::copysign(up ? high : low, x);
}

TEST(Fp8Cast, rounds_to_nearest_even_and_clamps) {
  for (const at::ScalarType type : kTypes) {
    const std::vector<double> list = all_numbers(type);
    EXPECT_EQ(list.back(), largest(type));
    std::vector<float> given;
    for (size_t i = 0; i < list.size(); ++i) {
      given.push_back(static_cast<float>(list[i]));
      if (i + 1 == list.size()) break;
      const auto middle = static_cast<float>((list[i] + list[i + 1]) / 2);
      for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)}) given.push_back(x);
    }
    for (const double x : {1.5 * largest(type), 1e9, 1e-9}) given.push_back(static_cast<float>(x));
    const size_t count = given.size();
    for (size_t i = 0; i < count; ++i) given.push_back(-given[i]);
    at::Tensor x = at::empty({static_cast<int64_t>(given.size())});
    std::copy(given.begin(), given.end(), x.mutable_data_ptr<float>());
    const at::Tensor found = fp8::cast(x, scalar(1), type).values.to(at::kFloat);
    for (size_t i = 0; i < given.size(); ++i)
      EXPECT_EQ(found[static_cast<int64_t>(i)].item<double>(), rounded(given[i], list)) << given[i];
  }
}

TEST(Fp8Cast, leaves_its_input_alone) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = numbers({16}, 1).to(type), before = x.clone();
    fp8::cast(x, scalar(3), at::kFloat8_e5m2);
    EXPECT_TRUE(at::equal(x, before));
  }
}

TEST(Fp8Cast, scales_before_it_rounds_and_keeps_what_undoes_it) {
  const Scaled s = fp8::cast(at::full({4}, 3.0).to(at::kBFloat16), scalar(0.25), at::kFloat8_e4m3fn);
  EXPECT_EQ(s.values.to(at::kFloat)[3].item<double>(), 0.75);
  EXPECT_EQ(s.inverse.item<double>(), 4);
}

// --- products

// Of the rounded operands in float64, with what float32 sums and one rounding of the result may be off.
void expect_product(const at::Tensor& found, const Scaled& a, const Scaled& b, const at::Tensor& bias,
                    double rounding) {
  const at::Tensor x = a.values.to(at::kDouble) * a.inverse.to(at::kDouble),
                   w = b.values.to(at::kDouble) * b.inverse.to(at::kDouble);
  at::Tensor wanted = x.matmul(w.t());
  const at::Tensor sizes = x.abs().matmul(w.abs().t());
  if (bias.defined()) wanted = wanted + bias.to(at::kDouble);
  const double sums = static_cast<double>(x.size(1)) * 0x1p-24 + 4 * 0x1p-24;  // and the scales' own roundings
  const at::Tensor allowed = sizes * sums + wanted.abs() * rounding + 1e-30;
  EXPECT_TRUE((found.to(at::kDouble) - wanted).abs().le(allowed).all().item<bool>());
}

TEST(Fp8Product, is_that_of_the_rounded_operands) {
  for (const at::ScalarType of_a : kTypes)
    for (const at::ScalarType out : {at::kFloat, at::kBFloat16}) {
      const Scaled a = fp8::cast(numbers({40, 64}, 1), scalar(37.0), of_a),
                   b = fp8::cast(numbers({48, 64}, 2, 0.02), scalar(1234.5), at::kFloat8_e4m3fn);
      const double rounding = out == at::kFloat ? 0x1p-23 : 0x1p-8;
      const at::Tensor bias = numbers({48}, 3).to(out);
      for (const at::Tensor& added : {at::Tensor(), bias}) {
        const at::Tensor y = fp8::product(a, b, out, Sums::precise, added);
        EXPECT_EQ(y.scalar_type(), out);
        expect_product(y, a, b, added, rounding);
      }
    }
}

TEST(Fp8Product, a_transposed_operand_is_padded_with_zeros) {
  const Scaled a = fp8::cast(numbers({40, 32}, 1), scalar(8.0), at::kFloat8_e4m3fn), t = transposed(a);
  ASSERT_EQ(t.values.sizes(), (std::vector<int64_t>{32, 48}));
  EXPECT_TRUE(t.values.is_contiguous());
  EXPECT_TRUE(at::equal(t.values.to(at::kFloat).narrow(1, 0, 40), a.values.to(at::kFloat).t()));
  EXPECT_EQ(t.values.to(at::kFloat).narrow(1, 40, 8).abs().sum().item<double>(), 0);
}

// --- a layer

struct Layer {
  explicit Layer(const Recipe& recipe, int64_t in = 32, int64_t out = 48) : scaling(std::make_shared<Scaling>(recipe)) {
    LinearSpec spec;
    spec.name = "fc", spec.in = in, spec.out = out;
    linear = make_layers(make_plain_layers(nullptr), scaling)->linear(spec);
    weight = linear->params()[0], bias = linear->params()[1];
    weight->tensor = numbers({out, in}, 5, 0.02).to(at::kBFloat16), bias->tensor = numbers({out}, 6).to(at::kBFloat16);
    weight->grad = at::zeros({out, in}), bias->grad = at::zeros({out});
    scaling->attach({"fc"}, nullptr, nullptr, at::Device(at::kCPU));
  }
  at::Tensor forward(const at::Tensor& x) const { return linear->apply(x, {}, nullptr); }
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x) const {
    WeightWork work;
    return linear->apply_backward(dy, x, {}, work);
  }
  ScalingPtr scaling;
  std::shared_ptr<Linear> linear;
  ParamPtr weight, bias;
};

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

// --- scales of blocks

// Every block by its own largest value, from the definition.
TEST(Fp8Blocks, each_has_the_largest_power_of_two_with_which_it_fits) {
  for (const at::ScalarType type : kTypes)
    for (const int64_t tall : {1, 128}) {
      const std::vector<double> list = all_numbers(type);
      at::Tensor x = numbers({200, 272}, 3, 0.02);
      x.narrow(1, 0, 128).mul_(1e-6);
      x.narrow(0, 128, 72).narrow(1, 256, 16).zero_();
      const Scaled s = cast_blocks(x, tall, type);
      ASSERT_EQ(s.inverse.sizes(), (std::vector<int64_t>{(200 + tall - 1) / tall, 3}));
      const at::Tensor values = s.values.to(at::kFloat),
                       again = values *
                               s.inverse.repeat_interleave(tall, 0).narrow(0, 0, 200).repeat_interleave(128, 1).narrow(
                                   1, 0, 272);
      for (int64_t i = 0; i < s.inverse.size(0); ++i)
        for (int64_t k = 0; k < 3; ++k) {
          const int64_t rows = std::min(tall, 200 - i * tall), columns = std::min<int64_t>(128, 272 - k * 128);
          const auto block = [&](const at::Tensor& t) {
            return t.narrow(0, i * tall, rows).narrow(1, k * 128, columns);
          };
          const double amax = block(x).abs().max().item<double>(), inverse = s.inverse[i][k].item<double>();
          int exponent = 0;
          EXPECT_EQ(std::frexp(inverse, &exponent), 0.5) << "no power of two";
          if (amax == 0) {
            EXPECT_EQ(inverse, 1);
            continue;
          }
          EXPECT_LE(amax / inverse, largest(type));
          EXPECT_GT(2 * amax / inverse, largest(type));
          for (const auto& [row, column] : {std::pair(int64_t{0}, int64_t{0}), std::pair(rows - 1, columns - 1)})
            EXPECT_EQ(block(again)[row][column].item<double>(),
                      rounded(block(x)[row][column].item<double>() / inverse, list) * inverse);
        }
    }
}

TEST(Fp8Blocks, numbers_that_are_not_finite_stay_in_their_block) {
  at::Tensor x = numbers({2, 256}, 1);
  x[1][3].fill_(std::numeric_limits<double>::infinity());
  const Scaled s = cast_blocks(x, 1, at::kFloat8_e4m3fn);
  EXPECT_TRUE(std::isnan(s.inverse[1][0].item<double>()));
  EXPECT_TRUE(std::isfinite(s.inverse[0][0].item<double>()) && std::isfinite(s.inverse[1][1].item<double>()));
}

// Each sums along rows of its operands: x and dy have other blocks in the weight's gradient than in the other two.
TEST(Fp8Blocks, the_three_products_of_a_layer_cast_along_what_they_sum) {
  Recipe recipe;
  recipe.delayed = false, recipe.blocks = true, recipe.backward = at::kFloat8_e4m3fn;
  const Layer layer(recipe, 272, 160);
  const at::Tensor x = numbers({2, 150, 272}, 1).to(at::kBFloat16),
                   dy = numbers({2, 150, 160}, 2, 1e-5).to(at::kBFloat16);
  const at::Tensor y = layer.forward(x), dx = layer.backward(dy, x);
  const at::Tensor x_NI = x.view({-1, 272}), dy_NO = dy.view({-1, 160}), w = layer.weight->tensor;
  const auto wide = [](const at::Tensor& t, int64_t tall) {
    const Scaled s = cast_blocks(t, tall, at::kFloat8_e4m3fn);
    const auto each = [&](const at::Tensor& scales) {
      return scales.repeat_interleave(tall, 0)
          .narrow(0, 0, t.size(0))
          .repeat_interleave(128, 1)
          .narrow(1, 0, t.size(1));
    };
    return Scaled{s.values.to(at::kDouble) * each(s.inverse.to(at::kDouble)), scalar(1)};
  };
  const Scaled sw = wide(w, 128);
  expect_product(y.view({-1, 160}), wide(x_NI, 1), sw, layer.bias->tensor, 0x1p-8);
  expect_product(dx.view({-1, 272}), wide(dy_NO, 1), {sw.values.t(), sw.inverse}, {}, 0x1p-8);
  expect_product(layer.weight->grad, wide(dy_NO.t(), 1), wide(x_NI.t(), 1), {}, 0x1p-23);
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

// --- scales

double scale_of(const Scaled& s) { return 1 / s.inverse.item<double>(); }

struct Scales {
  explicit Scales(Recipe recipe) : scaling(recipe) {
    scaling.add_layer("fc");
    scaling.attach({"fc"}, nullptr, nullptr, at::Device(at::kCPU));
  }
  // The scale of a tensor with this largest value.
  double see(double amax, Role role = Role::input) const {
    return scale_of(scaling.cast(0, role, at::full({8}, amax)));
  }
  void step(double amax) {
    scaling.step_begin();
    see(amax);
    scaling.step_end();
  }
  double next() {  // what the coming step uses, whatever its tensor
    scaling.step_begin();
    const double scale = see(1);
    return scale;
  }
  Scaling scaling;
};

Recipe remembers(int64_t steps, bool most_recent = false, double margin = 0) {
  Recipe recipe;
  recipe.amax_history_len = steps, recipe.most_recent = most_recent, recipe.margin = margin;
  return recipe;
}

TEST(Fp8Scales, follow_the_largest_value_of_the_steps_that_are_remembered) {
  Scales three(remembers(3)), newest(remembers(3, true));
  const double seen[] = {2, 8, 4, 1, 0.5, 16};
  const double largest_of_three[] = {2, 8, 8, 8, 4, 16};
  for (int i = 0; i < 6; ++i) {
    three.step(seen[i]), newest.step(seen[i]);
    three.scaling.step_begin(), newest.scaling.step_begin();
    EXPECT_FLOAT_EQ(scale_of(three.scaling.cast(0, Role::input, at::full({8}, 0.001))), 448 / largest_of_three[i]) << i;
    EXPECT_FLOAT_EQ(scale_of(newest.scaling.cast(0, Role::input, at::full({8}, 0.001))), 448 / seen[i]) << i;
  }
}

// A fused block that is left to the model has asked for its layers before.
TEST(Fp8Scales, of_a_layer_that_was_made_twice_are_those_of_one) {
  Scaling scaling(remembers(4));
  EXPECT_EQ(scaling.add_layer("fc"), 0);
  EXPECT_EQ(scaling.add_layer("proj"), 1);
  EXPECT_EQ(scaling.add_layer("fc"), 0);
}

TEST(Fp8Scales, leave_a_margin_and_know_the_types_range) {
  Scales scales(remembers(4, false, 2));
  EXPECT_FLOAT_EQ(scales.see(7), 448.0 / 4 / 7);
  EXPECT_FLOAT_EQ(scales.see(7, Role::gradient), 57344.0 / 4 / 7);
  Recipe e4m3;
  e4m3.backward = at::kFloat8_e4m3fn, e4m3.delayed = false;
  EXPECT_FLOAT_EQ(Scales(e4m3).see(7, Role::gradient), 448.0 / 7);
  EXPECT_FLOAT_EQ(scales.see(0), 1);
}

TEST(Fp8Scales, stay_within_a_step_and_are_not_those_of_an_evaluation) {
  Scales scales(remembers(4));
  scales.step(2);
  scales.scaling.step_begin();
  for (const double amax : {64.0, 1.0}) EXPECT_FLOAT_EQ(scales.see(amax), 224);  // clamped, as Transformer Engine does
  scales.scaling.step_end();
  EXPECT_FLOAT_EQ(scales.next(), 7);
  scales.scaling.step_end();
  Scales evaluated(remembers(4));
  evaluated.see(1000);  // outside of a step
  evaluated.step(2);
  EXPECT_FLOAT_EQ(evaluated.next(), 224);
}

TEST(Fp8Scales, numbers_that_are_not_finite_are_passed_on_and_leave_no_trace) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Scales scales(remembers(4));
    scales.step(2);
    scales.scaling.step_begin();
    const at::Tensor x = at::full({8}, 1.0);
    x[3].fill_(bad);
    EXPECT_TRUE(std::isnan(scales.scaling.cast(0, Role::input, x).values.to(at::kFloat)[3].item<double>())) << bad;
    scales.scaling.step_end();
    EXPECT_FLOAT_EQ(scales.next(), 224) << bad;
  }
}

}  // namespace
}  // namespace drivetrain::test
