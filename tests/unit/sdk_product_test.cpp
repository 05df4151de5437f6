// Products by either library, of every layout they get, against float64.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/linear.h>

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

}  // namespace
}  // namespace drivetrain
