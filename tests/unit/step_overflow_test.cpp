// Steps whose gradients or losses are not finite: what is left out, what ends the run, what people are told. A strategy
// of the test breaks numbers of one rank; every rank has to come to the same end.
#include <ATen/TensorOperators.h>

#include "support/broken_run.h"

namespace drivetrain::test {
namespace {

TEST(Overflow, of_one_rank_leaves_the_update_out_on_all_and_nothing_but_the_step_number_goes_on) {
  for (const char* precision :
       {R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true, "initial_scale_power": 8}})"}) {
    const auto both = run(config(6, precision), {{2, 4, 5}, kInfinity, false, 1}, 2);
    for (const Outcome& o : both) {
      ASSERT_EQ(o.error, "");
      for (size_t step = 1; step <= 6; ++step) {
        const bool left_out = step == 2 || step == 4 || step == 5;
        EXPECT_EQ(o.skipped(step), left_out) << step;
        EXPECT_EQ(same(o.weights[step - 1], o.weights[step]), left_out) << step;
        EXPECT_EQ(o.figures[step - 1].find("grad_norm")->to_json() == "null", left_out)
            << "as it is written to metrics.jsonl";
      }
      // The schedule follows updates, not steps; WarmupLR, as DeepSpeed's, has one rate for the first two.
      EXPECT_EQ(o.figure(1, "lr"), o.figure(3, "lr"));
      EXPECT_LT(o.figure(3, "lr"), o.figure(4, "lr"));
      EXPECT_EQ(o.figure(2, "lr"), o.figure(3, "lr"));
      EXPECT_EQ(o.figure(4, "lr"), o.figure(6, "lr"));
    }
    for (size_t i = 0; i < both[0].weights.size(); ++i) EXPECT_TRUE(same(both[0].weights[i], both[1].weights[i])) << i;
    EXPECT_HAS(both[0].all_said(), "step 2: gradients are not finite, first that of embedding.word");
    EXPECT_HAS(both[0].all_said(), "the update is left out");
    EXPECT_EQ(both[1].all_said().find("left out"), std::string::npos) << "one rank speaks for all";
  }
}

double largest_change(const Tensors& before, const Tensors& after) {
  double largest = 0;
  for (size_t i = 0; i < before.size(); ++i)
    largest = std::max(largest, (after[i] - before[i]).abs().max().item<double>());
  return largest;
}

// Moments and bias correction too: what is left out was never there. Adam's first update moves every weight whose
// gradient is far above epsilon by the learning rate, and no weight by more; a second one with the same moments, or a
// first one with the second's bias correction, would not.
TEST(Overflow, a_step_that_was_left_out_shows_in_nothing_that_follows) {
  const Value plain = config(3, R"({"bf16": {"enabled": true}, "gradient_accumulation_steps": 1})");
  const Outcome o = run(plain, {{1}, kInfinity, false, 0})[0];
  const Outcome never = run(plain, {})[0];
  ASSERT_EQ(o.error + never.error, "");
  EXPECT_TRUE(o.skipped(1));
  EXPECT_EQ(o.figure(2, "lr"), never.figure(1, "lr"));
  EXPECT_EQ(o.figure(1, "loss"), never.figure(1, "loss"));
  for (const at::Tensor& weight : o.weights[3]) EXPECT_TRUE(weight.isfinite().all().item<bool>());
  for (const auto& [run, step] : {std::pair(&o, 2), std::pair(&never, 1)}) {
    const double lr = run->figure(step, "lr");
    EXPECT_NEAR(largest_change(run->weights[step - 1], run->weights[step]), lr, 1e-3 * lr) << step;
  }
}

TEST(Overflow, lowers_the_loss_scale_by_its_rules) {
  const Outcome o = run(
      config(9, R"({"fp16": {"enabled": true, "initial_scale_power": 8, "hysteresis": 2, "loss_scale_window": 3}})"),
      {{2, 3, 4}, kInfinity, false, 0})[0];
  ASSERT_EQ(o.error, "");
  std::vector<double> scales;
  for (size_t step = 1; step <= 9; ++step) scales.push_back(o.figure(step, "loss_scale"));
  EXPECT_EQ(scales, (std::vector<double>{256, 256, 256, 128, 64, 64, 64, 64, 128}));
  EXPECT_HAS(o.all_said(),
             "step 2: gradients are not finite, first that of embedding.word.weight; the update is left out, loss "
             "scale 256 stays");
  EXPECT_HAS(o.all_said(), "loss scale 256 falls to 128");
}

TEST(Overflow, at_the_least_loss_scale_ends_the_run_with_the_parameter_and_advice) {
  const Outcome o =
      run(config(9, R"({"fp16": {"enabled": true, "initial_scale_power": 5, "hysteresis": 1, "min_loss_scale": 8}})"),
          {{2, 3, 4, 5}, kInfinity, false, 0})[0];
  EXPECT_EQ(o.figures.size(), 3u);
  EXPECT_EQ(o.code, ErrorCode::numeric);
  EXPECT_HAS(o.error, "step 4: loss is ");
  EXPECT_HAS(o.error, "at loss scale 8, which is its minimum, first in the gradient of embedding.word");
  EXPECT_HAS(o.error, "The weights are those of step 3");
  EXPECT_HAS(o.error, "bfloat16");
}

TEST(Overflow, a_static_scale_or_none_gives_up_after_a_hundred_in_a_row) {
  std::set<int64_t> all;
  for (int64_t step = 2; step < 300; ++step) all.insert(step);
  for (const char* precision :
       {R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true, "loss_scale": 128}})"}) {
    const Outcome o = run(config(300, precision), {all, kInfinity, false, 0})[0];
    EXPECT_EQ(o.figures.size(), 100u);
    EXPECT_EQ(o.code, ErrorCode::numeric);
    EXPECT_HAS(o.error, "step 101: ");
    EXPECT_HAS(o.error, "as in the 99 steps before it, whose updates were left out");
  }
}

TEST(Overflow, ends_the_run_where_the_precision_does_not_leave_updates_out) {
  for (const char* precision : {"{}", R"({"bf16": {"enabled": true, "check_grad_overflow": false}})"}) {
    const Outcome o = run(config(4, precision), {{3}, kInfinity, false, 0})[0];
    EXPECT_EQ(o.code, ErrorCode::numeric);
    EXPECT_HAS(o.error, "step 3: loss is ");
    EXPECT_HAS(o.error, "first in the gradient of embedding.word");
    ASSERT_EQ(o.figures.size(), 2u);
    EXPECT_EQ(o.figures[0].find("skipped"), nullptr);
    EXPECT_EQ(o.figures[0].find("loss_scale"), nullptr);
  }
}

TEST(Overflow, in_every_step_of_a_short_run_is_a_failure_and_no_model) {
  for (const char* precision : {R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true, "loss_scale": 128}})",
                                R"({"fp16": {"enabled": true}})"}) {
    const std::vector<Outcome> both = run(config(3, precision), {{1, 2, 3}, kInfinity, false, 1}, 2);
    for (const Outcome& o : both) {
      EXPECT_EQ(o.code, ErrorCode::numeric) << precision;
      EXPECT_EQ(o.figures.size(), 3u);
      EXPECT_HAS(o.error, "no update was made");
    }
  }
}

// The weights of the last step are there; whoever runs the trainer writes them before it ends with the failure.
TEST(LastStep, that_fails_behind_its_update_is_a_step_done_on_all_ranks) {
  Fault fault{{3}, kInfinity, false, 1};
  fault.throws = true;
  const std::vector<Outcome> both = run(config(3, R"({"eval_interval": 3, "eval_iters": 1})"), fault, 2);
  for (const Outcome& o : both) {
    ASSERT_EQ(o.figures.size(), 3u);
    EXPECT_NE(o.figures[2].find("valid_loss"), nullptr);
  }
  EXPECT_EQ(both[0].error, "");
  EXPECT_HAS(both[1].error, "the test's step_end");
}

// No scale would make it finite.
TEST(Overflow, a_loss_that_is_no_number_is_none) {
  for (const char* precision : {R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true}})"}) {
    const Outcome o = run(config(4, precision), {{2}, std::numeric_limits<double>::quiet_NaN(), true, 0})[0];
    EXPECT_EQ(o.code, ErrorCode::numeric);
    EXPECT_HAS(o.error, "step 2: loss is nan");
    EXPECT_EQ(o.figures.size(), 1u);
    EXPECT_EQ(o.error.find("does not depend on the loss scale") != std::string::npos,
              std::string(precision).find("fp16") != std::string::npos);
  }
}

}  // namespace
}  // namespace drivetrain::test
