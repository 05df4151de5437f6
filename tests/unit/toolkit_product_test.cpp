// Products by whoever makes them on this processor, of every layout they get, against float64.
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/short_product.h>

#include "kernels/product/product.h"

namespace drivetrain {
namespace {

at::Tensor numbers(int64_t rows, int64_t columns, const char* name) {
  at::Tensor flat = at::zeros({rows * columns}, at::TensorOptions(at::kFloat));
  fill_normal(flat, 3, name, 0, 1);
  return flat.view({rows, columns});
}

// Each element is off by a few roundings of the sum of its products' sizes.
void expect_near(const at::Tensor& ours, const at::Tensor& truth, const at::Tensor& sizes) {
  ASSERT_EQ(ours.sizes(), truth.sizes());
  EXPECT_LE(((ours.to(at::kDouble) - truth).abs() / sizes).max().item<double>(), 8 * 6e-8);
}

void check(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor X = x.to(at::kDouble), W = w.to(at::kDouble);
  expect_near(product(x, w), at::mm(X, W.t()), at::mm(X.abs(), W.abs().t()));
  const at::Tensor b = numbers(1, w.size(0), "b").view({-1}), B = b.to(at::kDouble);
  expect_near(product(x, w, b), at::mm(X, W.t()) + B, at::mm(X.abs(), W.abs().t()) + B.abs());
}

void check_backward(const at::Tensor& dy, const at::Tensor& w) {
  const at::Tensor DY = dy.to(at::kDouble), W = w.to(at::kDouble);
  expect_near(product_backward(dy, w), at::mm(DY, W), at::mm(DY.abs(), W.abs()));
}

TEST(Product, of_small_and_large_shapes_equals_float64) {
  const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {64, 300, 500}, {256, 768, 2304}, {255, 769, 130}};
  for (const auto& [N, I, O] : shapes) {
    check(numbers(N, I, "x"), numbers(O, I, "w"));
    check_backward(numbers(N, O, "dy"), numbers(O, I, "w"));
  }
}

TEST(Product, takes_rows_of_larger_tensors_and_parameters) {
  const at::Tensor x = numbers(600, 512, "x").narrow(0, 100, 400), w = numbers(700, 512, "w").narrow(0, 50, 600);
  const at::Tensor part = numbers(400, 1024, "part").narrow(1, 256, 512);  // rows with a gap
  check(x, w);
  check(part, w);
  check_backward(part, numbers(512, 300, "v"));
  const at::Tensor leaf = w.clone().set_requires_grad(true);
  EXPECT_FALSE(product(x, leaf).requires_grad());
}

TEST(Product, gives_the_same_bits_again_and_no_surprise_for_float64) {
  const at::Tensor x = numbers(256, 768, "x"), w = numbers(768, 768, "w");
  EXPECT_TRUE(product(x, w).equal(product(x, w)));
  EXPECT_TRUE(product_backward(x, w).equal(product_backward(x, w)));
  const at::Tensor wide = product(x.to(at::kDouble), w.to(at::kDouble));
  EXPECT_EQ(wide.scalar_type(), at::kDouble);
  EXPECT_TRUE(wide.equal(at::mm(x.to(at::kDouble), w.to(at::kDouble).t())));
}

// --- 16 bits on the CPU

at::Tensor rounded(int64_t rows, int64_t columns, const char* name) {
  return numbers(rows, columns, name).to(at::kBFloat16);
}

// Sums of rounded operands in float32: each addition is off by half an ulp of what there is so far.
double sum_room(int64_t summands) { return static_cast<double>(summands) * 6e-8; }

void expect_within(const at::Tensor& ours, const at::Tensor& truth, const at::Tensor& room) {
  ASSERT_EQ(ours.sizes(), truth.sizes());
  EXPECT_LE(((ours.to(at::kDouble) - truth).abs() - room).max().item<double>(), 0);
}

std::shared_ptr<Param> weight_with_slot(int64_t rows, int64_t columns, double value) {
  const auto weight = std::make_shared<Param>("w", Layout::whole({rows, columns}), InitRule::zeros());
  weight->grad = at::ones({rows, columns}, at::TensorOptions(at::kFloat)) * value;
  return weight;
}

constexpr int64_t kShortShapes[][3] = {{8, 8, 8},       {3, 40, 50},    {64, 300, 500},
                                       {255, 769, 130}, {40, 50, 9000}, {9000, 33, 70}};

TEST(ShortProduct, of_bfloat16_is_a_float32_sum_rounded_once) {
  for (const auto& [N, I, O] : kShortShapes) {
    const at::Tensor x = rounded(N, I, "x"), w = rounded(O, I, "w"), b = rounded(1, O, "b").view({-1}),
                     dy = rounded(N, O, "dy");
    const at::Tensor X = x.to(at::kDouble), W = w.to(at::kDouble), DY = dy.to(at::kDouble);
    const at::Tensor y = at::mm(X, W.t()) + b.to(at::kDouble), dx = at::mm(DY, W);
    const at::Tensor sizes = at::mm(X.abs(), W.abs().t()) + b.to(at::kDouble).abs();
    expect_within(product(x, w, b), y, y.abs() * 0x1.02p-8 + sizes * sum_room(I + 1));
    expect_within(product_backward(dy, w), dx, dx.abs() * 0x1.02p-8 + at::mm(DY.abs(), W.abs()) * sum_room(O));
  }
}

TEST(ShortProduct, gradients_of_weights_are_no_further_from_float64_than_float32_sums) {
  for (const auto& [N, I, O] : kShortShapes) {
    const at::Tensor x = rounded(N, I, "x"), dy = rounded(N, O, "dy");
    const at::Tensor truth = at::mm(dy.to(at::kDouble).t(), x.to(at::kDouble)),
                     sizes = at::mm(dy.to(at::kDouble).abs().t(), x.to(at::kDouble).abs());
    const auto weight = weight_with_slot(O, I, 5);
    accumulate_weight_grad(*weight, dy, x);
    expect_within(weight->grad, truth, sizes * sum_room(N));
    accumulate_weight_grad(*weight, dy, x);
    expect_within(weight->grad, truth * 2, sizes * 2 * sum_room(N + 1));
  }
}

// Restores what other tests rely on.
struct Threads {
  ~Threads() { at::set_num_threads(before); }
  const int before = at::get_num_threads();
};

TEST(ShortProduct, has_the_same_bits_on_any_number_of_threads) {
  if (kernels::product_unit() == kernels::ProductUnit::none) return;  // LibTorch's are taken here
  const Threads restored;
  for (const auto& [N, I, O] : kShortShapes) {
    const at::Tensor x = rounded(N, I, "x"), w = rounded(O, I, "w"), dy = rounded(N, O, "dy");
    if (N < 8) continue;  // LibTorch's
    std::vector<at::Tensor> first;
    for (const int threads : {1, 2, 3}) {
      at::set_num_threads(threads);
      const auto weight = weight_with_slot(O, I, 0);
      accumulate_weight_grad(*weight, dy, x);
      const std::vector<at::Tensor> now = {product(x, w), product_backward(dy, w), weight->grad};
      if (first.empty()) first = now;
      for (size_t i = 0; i < now.size(); ++i)
        EXPECT_TRUE(now[i].equal(first[i])) << threads << " threads, product " << i;
    }
  }
}

struct MatmulPrecision {
  explicit MatmulPrecision(const char* name) { at::globalContext().setFloat32MatmulPrecision(name); }
  ~MatmulPrecision() { at::globalContext().setFloat32MatmulPrecision("highest"); }
};

// What the README says of the key: high is off by 2^-15 of the sizes at most, medium by 2^-7.
TEST(ShortProduct, float32_matmul_precision_keeps_what_it_promises) {
  const at::Tensor x = numbers(100, 300, "x"), w = numbers(70, 300, "w"), dy = numbers(100, 70, "dy");
  const at::Tensor X = x.to(at::kDouble), W = w.to(at::kDouble), DY = dy.to(at::kDouble);
  const at::Tensor highest = product(x, w);
  const auto check_all = [&](double room) {
    const auto weight = weight_with_slot(70, 300, 0);
    accumulate_weight_grad(*weight, dy, x);
    expect_within(product(x, w), at::mm(X, W.t()), at::mm(X.abs(), W.abs().t()) * room);
    expect_within(product_backward(dy, w), at::mm(DY, W), at::mm(DY.abs(), W.abs()) * room);
    expect_within(weight->grad, at::mm(DY.t(), X), at::mm(DY.abs().t(), X.abs()) * room);
  };
  {
    const MatmulPrecision high("high");
    check_all(0x1.0p-15);
  }
  {
    const MatmulPrecision medium("medium");
    check_all(0x1.0p-7);
    if (float_products() == FloatProducts::rounded) {
      EXPECT_TRUE(product(x, w).equal(product(x.to(at::kBFloat16).to(at::kFloat), w.to(at::kBFloat16).to(at::kFloat))));
    }
  }
  EXPECT_TRUE(product(x, w).equal(highest));
}

}  // namespace
}  // namespace drivetrain
