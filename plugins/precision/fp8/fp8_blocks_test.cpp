// Scales of blocks, against the definition of each block, and where they lie for products on CUDA.
#include <ATen/BlasBackend.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <limits>

#include "blocks.h"
#include "kernels/eight_bits/eight_bits_test.h"
#include "test_layer.h"

namespace drivetrain::test {
namespace {

namespace definition = kernels::eight_bits_test;

std::vector<double> all_of(const at::Tensor& t) {
  const at::Tensor wide = t.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

void expect_same(const at::Tensor& found, const std::vector<double>& wanted, const char* what) {
  const std::vector<double> values = all_of(found);
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_TRUE(definition::same(values[i], wanted[i])) << what << "[" << i << "]: " << values[i] << " " << wanted[i];
}

// To the bit, as the kernel for CUDA is held against it.
void expect_definition(const at::Tensor& x, int64_t tall) {
  const Scaled s = cast_blocks(x, tall);
  const definition::BlockCast wanted = definition::cast_by_definition(all_of(x), x.size(0), x.size(1), tall);
  ASSERT_EQ(s.inverse.sizes(), (std::vector<int64_t>{(x.size(0) + tall - 1) / tall, (x.size(1) + 127) / 128}));
  expect_same(s.values, wanted.values, "values");
  expect_same(s.inverse, wanted.inverses, "inverses");
}

TEST(Fp8Blocks, each_has_the_largest_power_of_two_with_which_it_fits) {
  at::Tensor x = numbers({200, 272}, 3, 0.02);
  x.narrow(1, 0, 128).mul_(1e-6);
  x.narrow(0, 128, 72).narrow(1, 256, 16).zero_();
  for (const int64_t tall : {1, 128}) expect_definition(x, tall);
}

// Beside the numbers where the power of two changes, and at both ends of float32.
TEST(Fp8Blocks, powers_of_two_change_where_the_largest_number_no_longer_fits) {
  std::vector<float> firsts = {0.0F, -0.0F, 0x1p-149F, 0x1p-126F, 0x1.fffffep127F, 0x1p-118F, 0x1p-119F, 0x1p-111F};
  for (const float most : {448.0F, 56.0F, 3.5F, 57344.0F, 0x1.cp-110F})
    for (const float x : {most, std::nextafter(most, 0.0F), std::nextafter(most, 1e9F)}) firsts.push_back(x);
  at::Tensor x = at::zeros({static_cast<int64_t>(firsts.size()), 16});
  for (size_t i = 0; i < firsts.size(); ++i) x[static_cast<int64_t>(i)][0] = firsts[i];
  expect_definition(x, 1);
}

TEST(Fp8Blocks, numbers_that_are_not_finite_stay_in_their_block) {
  at::Tensor x = numbers({2, 256}, 1);
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    x[1][3].fill_(bad);
    expect_definition(x, 1);
    const Scaled s = cast_blocks(x, 1);
    EXPECT_TRUE(std::isnan(s.inverse[1][0].item<double>()));
    EXPECT_TRUE(std::isfinite(s.inverse[0][0].item<double>()) && std::isfinite(s.inverse[1][1].item<double>()));
  }
}

// at::_scaled_mm_v2 checks shapes and strides, and cuBLASLt reads what it was told: rows of scales of squares begin in
// sixteen bytes, and scales of single rows lie beside those of the next row. (PyTorch's _scaled_mm checks another
// layout, in which cuBLASLt finds wrong scales unless four divides the number of blocks: its pull request 166752.)
TEST(Fp8Blocks, scales_lie_as_products_on_cuda_want_them) {
  for (const int64_t R : {16, 48, 128, 200, 1024})
    for (const int64_t S : {16, 128, 640, 1024}) {
      const int64_t blocks = (S + 127) / 128, in_four = (blocks + 3) / 4 * 4, height = (R + 15) / 16 * 16;
      const auto bytes = at::TensorOptions(at::kFloat8_e4m3fn);
      const Scaled rows = block_room(R, S, 1, bytes), squares = block_room(R, S, 128, bytes);
      for (const Scaled& t : {rows, squares}) {
        EXPECT_EQ(t.values.sizes(), (std::vector<int64_t>{height, (S + 127) / 128 * 128}));
        EXPECT_TRUE(t.values.is_contiguous());
        EXPECT_EQ(t.rows, R);
      }
      const BlockScales of_rows = for_product(rows), of_squares = for_product(squares);
      EXPECT_EQ(of_rows.kind, static_cast<int64_t>(at::blas::ScalingType::BlockWise1x128));
      EXPECT_EQ(of_rows.inverse.sizes(), (std::vector<int64_t>{height, blocks}));
      EXPECT_EQ(of_rows.inverse.strides(), (std::vector<int64_t>{1, height}));
      EXPECT_EQ(of_squares.kind, static_cast<int64_t>(at::blas::ScalingType::BlockWise128x128));
      EXPECT_EQ(of_squares.inverse.sizes(), (std::vector<int64_t>{in_four, (R + 127) / 128}));
      EXPECT_EQ(of_squares.inverse.strides(), (std::vector<int64_t>{1, in_four}));
    }
}

// Each sums along rows of its operands: x and dy have other blocks in the weight's gradient than in the other two.
TEST(Fp8Blocks, the_three_products_of_a_layer_cast_along_what_they_sum) {
  Recipe recipe;
  recipe.delayed = false, recipe.blocks = true;
  const Layer layer(recipe, 272, 160);
  const at::Tensor x = numbers({2, 150, 272}, 1).to(at::kBFloat16),
                   dy = numbers({2, 150, 160}, 2, 1e-5).to(at::kBFloat16);
  const at::Tensor y = layer.forward(x), dx = layer.backward(dy, x);
  const at::Tensor x_NI = x.view({-1, 272}), dy_NO = dy.view({-1, 160}), w = layer.weight->tensor;
  const auto wide = [](const at::Tensor& t, int64_t tall) {
    const Scaled s = cast_blocks(t, tall);
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
