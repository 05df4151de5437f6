// Scales of whole tensors against Transformer Engine's rules, and what is kept of a step.
#include <ATen/ops/equal.h>

#include <cmath>
#include <limits>

#include "test_layer.h"

namespace drivetrain::test {
namespace {

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

// Backward casts inputs and weights with the scale of forward, without reading them for it. Where all that is
// remembered is zeros, it has what this step has seen.
TEST(Fp8Scales, are_those_of_forward_where_backward_casts_again) {
  Scales scales(remembers(4));
  for (const double before : {0.0, 2.0, 1.0}) {
    scales.scaling.step_begin();
    const at::Tensor x = at::full({8, 16}, 5.0);
    for (const Role role : {Role::input, Role::weight}) {
      const Scaled forward = scales.scaling.cast(0, role, x);
      EXPECT_TRUE(at::equal(scales.scaling.cast_transposed(0, role, x).inverse, forward.inverse)) << before;
    }
    scales.scaling.step_end();
    scales.step(before);
  }
  Scales zeros(remembers(4));
  zeros.step(0);
  zeros.scaling.step_begin();
  zeros.see(7);
  EXPECT_FLOAT_EQ(scale_of(zeros.scaling.cast_transposed(0, Role::input, at::full({8, 16}, 7.0))), 64);
}

}  // namespace
}  // namespace drivetrain::test
