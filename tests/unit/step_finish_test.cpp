// The end of a step, built by hand from a mesh of one rank, an optimizer and one parameter: no run, no plugins.
#include "step/finish.h"

#include <ATen/ops/allclose.h>

#include <cmath>
#include <limits>

#include "step/step_state.h"
#include "support/step_by_hand.h"

namespace drivetrain::test {
namespace {

struct NotedRate : SteadyRate {
  Hyper at(const Progress& progress, const Hyper& base) const override { return asked.push_back(progress), base; }
  mutable std::vector<Progress> asked;
};

struct FinishByHand : testing::Test {
  FinishByHand() {
    Trainable t;
    t.param = model.front(), t.layout = t.param->layout;
    t.value = t.working = t.param->tensor, t.grad = t.param->grad;
    chunks = {{t}};
  }

  FinishParts parts() {
    return {.chunks = chunks,
            .model_params = model,
            .mesh = mesh,
            .strategies = strategies,
            .optimizer = optimizer,
            .lr_schedule = rate,
            .log = log,
            .train_batch_size = 1,
            .seq_length = 4};
  }
  // One step whose backward left `grad`, from `tokens` valid ones of the 4 there are room for.
  StepResult step(Finish& finish, const std::vector<float>& grad, int64_t tokens = 4) {
    chunks[0][0].grad.copy_(float32(grad));
    finish.sum_gradients(at::full({}, 8.0, at::TensorOptions(at::kDouble)), state);
    const StepResult result = finish.agree(1, {tokens}, {});
    if (!result.skipped.value_or(false)) finish.update(state);
    finish.updated();
    return result;
  }
  bool value_is(const std::vector<float>& wanted) const { return at::allclose(chunks[0][0].value, float32(wanted)); }

  const Mesh mesh{{}, 0, 1, nullptr};
  std::vector<ParamPtr> model = {parameter_by_hand("w", float32({1, 1, 1, 1}))};
  std::vector<Trainables> chunks;
  Strategies strategies;
  PlainDescent optimizer;
  NotedRate rate;
  KeptLines log;
  StepState state{1};
};

// The backward begins with 1 / 4, so gradients arrive divided by the tokens of a full batch.
TEST_F(FinishByHand, loss_norm_and_update_are_means_over_the_valid_tokens) {
  Finish finish(parts());
  finish.start();
  EXPECT_EQ(finish.seed_gradient(), 0.25);
  const StepResult full = step(finish, {3, 0, 4, 0});
  EXPECT_EQ(full.loss, 2);
  EXPECT_EQ(full.grad_norm, 5);
  EXPECT_EQ(full.lr, 0.5);
  EXPECT_TRUE(value_is({-0.5, 1, -1, 1}));
  const StepResult half = step(finish, {3, 0, 4, 0}, 2);  // gradients of two tokens: twice as much each
  EXPECT_EQ(half.loss, 4);
  EXPECT_EQ(half.grad_norm, 10);
  EXPECT_TRUE(value_is({-3.5, 1, -5, 1}));
}

TEST_F(FinishByHand, a_long_gradient_is_clipped_to_the_limit) {
  FinishParts clipped = parts();
  clipped.gradient_clipping = 0.5;
  Finish finish(clipped);
  finish.start();
  EXPECT_EQ(step(finish, {3, 0, 4, 0}).grad_norm, 5) << "before clipping";
  EXPECT_TRUE(value_is({1 - 0.5 * 0.3, 1, 1 - 0.5 * 0.4, 1}));
}

TEST_F(FinishByHand, a_step_without_a_label_is_no_update_and_does_not_end_the_run) {
  Finish finish(parts());
  finish.start();
  const StepResult none = step(finish, {0, 0, 0, 0}, 0);
  EXPECT_EQ(none.tokens, 0);
  EXPECT_EQ(none.skipped, std::optional(true));
  EXPECT_TRUE(value_is({1, 1, 1, 1}));
  const std::string text = error_text([&] { finish.check_trained(none); }, ErrorCode::io);
  EXPECT_NE(text.find("no step of this run had a label that counts"), std::string::npos) << text;
  EXPECT_EQ(rate.asked.back().updates, 0);
  const StepResult next = step(finish, {3, 0, 4, 0});
  EXPECT_EQ(next.skipped, std::nullopt) << "the next step has nothing of it";
  EXPECT_EQ(rate.asked.back().updates, 0) << "the schedule counts updates";
  EXPECT_TRUE(value_is({-0.5, 1, -1, 1}));
  finish.check_trained(next);
}

TEST_F(FinishByHand, a_gradient_that_is_not_finite_ends_the_run_with_the_parameters_name) {
  Finish finish(parts());
  finish.start();
  const std::string text = error_text(
      [&] {
        step(finish, {1, std::numeric_limits<float>::infinity(), 1, 1});
      },
      ErrorCode::numeric);
  EXPECT_NE(text.find("gradient of w"), std::string::npos) << text;
  EXPECT_TRUE(value_is({1, 1, 1, 1})) << "nothing was updated";
}

TEST_F(FinishByHand, strategies_finish_gradients_from_inside_and_spread_values_from_outside) {
  std::vector<std::string> hooks;
  strategies = {{"test/outer", std::make_shared<NotedHooks>("outer", hooks)},
                {"test/inner", std::make_shared<NotedHooks>("inner", hooks)}};
  Finish finish(parts());
  finish.start();
  step(finish, {1, 1, 1, 1});
  EXPECT_EQ(hooks, (std::vector<std::string>{"inner flush_grads", "outer flush_grads", "outer after_update",
                                             "inner after_update"}));
}

TEST_F(FinishByHand, an_optimizer_that_changes_a_shape_is_named) {
  struct Reshapes : PlainDescent {
    void update(const Trainables& chunk, const UpdateArgs&) override {
      const int64_t sizes[] = {2, 2}, strides[] = {2, 1};
      chunk[0].value.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef(sizes), at::IntArrayRef(strides));
    }
  } reshapes;
  FinishParts with_reshaping{.chunks = chunks,
                             .model_params = model,
                             .mesh = mesh,
                             .strategies = strategies,
                             .optimizer = reshapes,
                             .lr_schedule = rate,
                             .log = log,
                             .seq_length = 4,
                             .optimizer_id = "optimizer/reshapes"};
  Finish finish(with_reshaping);
  finish.start();
  const std::string text = error_text([&] { step(finish, {1, 1, 1, 1}); }, ErrorCode::plugin);
  EXPECT_NE(text.find("optimizer/reshapes"), std::string::npos) << text;
}

}  // namespace
}  // namespace drivetrain::test
