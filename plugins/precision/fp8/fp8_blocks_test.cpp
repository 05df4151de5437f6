// Scales of blocks, against the definition of each block.
#include <algorithm>
#include <cmath>
#include <limits>

#include "test_layer.h"

namespace drivetrain::test {
namespace {

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

}  // namespace
}  // namespace drivetrain::test
