// What a loss scale does to the numbers of whole runs; step_loss_scaler_test.cpp has its rules, step_overflow_test.cpp
// what overflows.
#include <ATen/TensorOperators.h>

#include "support/broken_run.h"

namespace drivetrain::test {
namespace {

// The scale doubles in every step; dividing by the next one, as DeepSpeed does, would halve the norms.
TEST(LossScale, gradients_are_divided_by_the_scale_they_were_made_with) {
  const Outcome fixed = run(config(6, R"({"fp16": {"enabled": true, "loss_scale": 64}})"), {})[0];
  const Outcome growing =
      run(config(6, R"({"fp16": {"enabled": true, "initial_scale_power": 6, "loss_scale_window": 1}})"), {})[0];
  ASSERT_EQ(growing.error + fixed.error, "");
  EXPECT_EQ(growing.figure(6, "loss_scale"), 64 * 16);
  for (size_t step = 1; step <= 6; ++step) {
    EXPECT_NEAR(growing.figure(step, "grad_norm"), fixed.figure(step, "grad_norm"),
                2e-3 * fixed.figure(step, "grad_norm"))
        << step;
    EXPECT_NEAR(growing.figure(step, "loss"), fixed.figure(step, "loss"), 2e-3) << step;
    EXPECT_FALSE(growing.skipped(step));
  }
}

// 1023.7 is no float16, 1023.5 is what the backward pass sees: the same gradients, divided by the same number.
TEST(LossScale, a_static_scale_that_float16_rounds_is_divided_out_as_it_was_rounded) {
  const auto scaled_by = [](const char* scale) {
    return run(config(1, concat(R"({"fp16": {"enabled": true, "loss_scale": )", scale, "}}")), {})[0];
  };
  const Outcome given = scaled_by("1023.7"), rounded = scaled_by("1023.5");
  EXPECT_EQ(given.figure(1, "grad_norm"), rounded.figure(1, "grad_norm"));
  EXPECT_EQ(given.figure(1, "loss_scale"), 1023.7);
}

// Else the same scale would protect small gradients less the more ranks there are.
TEST(LossScale, makes_gradients_of_the_same_size_on_any_number_of_ranks) {
  for (const char* precision : {R"({"fp16": {"enabled": true, "loss_scale": 64}})", R"({"bf16": {"enabled": true}})"}) {
    const Outcome alone = run(config(1, precision), {})[0];
    const bool scaled = std::string(precision).find("fp16") != std::string::npos;
    for (const int ranks : {2, 4}) {
      const Outcome shared = run(config(1, precision), {}, ranks)[0];
      ASSERT_EQ(shared.error, "");
      EXPECT_TRUE(at::equal(shared.first_gradient * (scaled ? 1 : ranks), alone.first_gradient)) << ranks << " ranks";
      EXPECT_NE(shared.figure(1, "grad_norm"), alone.figure(1, "grad_norm")) << "the other ranks' rows count";
      EXPECT_NEAR(shared.figure(1, "grad_norm"), alone.figure(1, "grad_norm"), 0.5 * alone.figure(1, "grad_norm"));
    }
  }
}

TEST(LossScale, that_float16_rounds_to_nothing_is_refused_before_any_step) {
  const Outcome o = run(config(1, R"({"fp16": {"enabled": true, "loss_scale": 1e-7}})"), {}, 2)[1];
  EXPECT_EQ(o.code, ErrorCode::config);
  EXPECT_TRUE(o.figures.empty());
  EXPECT_HAS(o.error, "loss_scale 1e-07 is too small for 32 tokens per step on each rank");
  EXPECT_HAS(o.error, "which float16 rounds to 0");
  // The next number but one above: the smallest float16.
  const Outcome least = run(config(1, R"({"fp16": {"enabled": true, "loss_scale": 2e-6}})"), {})[0];
  EXPECT_EQ(least.error, "");
}

}  // namespace
}  // namespace drivetrain::test
