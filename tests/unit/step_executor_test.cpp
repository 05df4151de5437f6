// A step's program on one stage, built by hand from two units: no run, no plugins.
#include "step/executor.h"

#include <ATen/TensorOperators.h>

#include "support/step_by_hand.h"

namespace drivetrain::test {
namespace {

// y = w * x, for one number w.
struct Times : Unit {
  explicit Times(ParamPtr weight) : Unit("times"), w(std::move(weight)) {}
  std::vector<ParamPtr> params() const override { return {w}; }
  Tensors forward(const Tensors& x, StepContext&, Saved& saved) override {
    saved.inputs = {x[0].to(at::kFloat)};
    return {saved.inputs[0] * w->tensor};
  }
  Tensors backward(const Tensors& dy, StepContext&, Saved& saved) override {
    accumulate_grad(*w, (dy[0] * saved.inputs[0]).sum());
    return {dy[0] * w->tensor};
  }
  ParamPtr w;
};

// The sum of all numbers; without labels the numbers themselves.
struct Sum : Unit {
  Sum() : Unit("sum") {}
  std::vector<ParamPtr> params() const override { return {}; }
  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) override {
    saved.inputs = x;
    return {ctx.batch().labels_BS.defined() ? x[0].to(at::kDouble).sum() : x[0]};
  }
  Tensors backward(const Tensors& dy, StepContext&, Saved& saved) override {
    return {at::zeros_like(saved.inputs[0]) + dy[0].to(at::kFloat)};
  }
};

struct ExecutorByHand : testing::Test {
  ExecutorParts parts() {
    return {.schedule = schedule,
            .mesh = mesh,
            .units = units,
            .chunk_units = chunk_units,
            .strategies = strategies,
            .micro_batches = 3};
  }
  // Numbers 1 and 2 in the first micro-batch, 2 and 4 in the second, ...
  static Batch batch(int64_t micro, bool labels) {
    Batch b;
    b.tokens_BS = at::full({1, 2}, micro + 1, at::TensorOptions(at::kLong));
    b.tokens_BS.mutable_data_ptr<int64_t>()[1] *= 2;
    if (labels) b.labels_BS = b.tokens_BS;
    return b;
  }

  const Mesh mesh{{}, 0, 1, nullptr};
  OneStage schedule;
  ParamPtr w = parameter_by_hand("w", float32({10}));
  UnitList units{{std::make_shared<Times>(w), std::make_shared<Sum>()}};
  std::vector<ChunkUnits> chunk_units = {{0, 2}};
  Strategies strategies;
  StepState state{1, &units};
};

TEST_F(ExecutorByHand, runs_every_micro_batch_forward_and_backward_and_adds_the_losses_up) {
  Executor executor(parts(), state, 0.5);
  executor.begin(Pass::train, 1, Mode::train);
  const at::Tensor loss = executor.run([](int64_t micro) { return batch(micro, true); });
  EXPECT_EQ(loss.item<double>(), 10.0 * (3 + 6 + 9));
  EXPECT_EQ(w->grad.item<float>(), 0.5f * (3 + 6 + 9)) << "from the gradient that the backward is seeded with";
}

TEST_F(ExecutorByHand, calls_hooks_around_every_visit_from_outside_in_and_back) {
  std::vector<std::string> hooks;
  strategies = {{"test/outer", std::make_shared<NotedHooks>("outer", hooks)},
                {"test/inner", std::make_shared<NotedHooks>("inner", hooks)}};
  Executor executor(parts(), state, 1);
  executor.begin(Pass::train, 1, Mode::train);
  executor.run([](int64_t micro) { return batch(micro, true); });
  ASSERT_EQ(hooks.size(), 2u + 3 * 2 * (2 + 2));
  EXPECT_EQ(hooks[0], "outer step_begin");
  EXPECT_EQ(hooks[2] + ", " + hooks[3], "outer before_forward, inner before_forward");
  EXPECT_EQ(hooks[hooks.size() - 2] + ", " + hooks.back(), "inner after_backward, outer after_backward");
}

TEST_F(ExecutorByHand, gives_the_last_units_output_where_there_are_no_labels) {
  Executor executor(parts(), state, 1);
  executor.begin(Pass::forward_only, 1, Mode::generate);
  const at::Tensor loss = executor.run([](int64_t micro) { return batch(micro, false); });
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_TRUE(executor.logits().equal(at::full({1, 2}, 30.0f, at::TensorOptions(at::kFloat)) * float32({1, 2})));
  EXPECT_EQ(w->grad.item<float>(), 0);
}

TEST_F(ExecutorByHand, refuses_a_program_that_makes_no_sense_with_the_schedules_name) {
  struct NoBackward : OneStage {
    Program program(int64_t stage, int64_t micro_batches, Pass pass) const override {
      Program list = OneStage::program(stage, micro_batches, pass);
      std::erase_if(list, [](const Instr& i) { return i.op == Op::backward && i.micro == 1; });
      return list;
    }
  } wrong;
  ExecutorParts with_wrong{.schedule = wrong,
                           .mesh = mesh,
                           .units = units,
                           .chunk_units = chunk_units,
                           .strategies = strategies,
                           .micro_batches = 3,
                           .schedule_id = "schedule/wrong"};
  const std::string text = error_text([&] { Executor(with_wrong, state, 1); }, ErrorCode::plugin);
  EXPECT_NE(text.find("schedule/wrong"), std::string::npos) << text;
  EXPECT_NE(text.find("micro-batch 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace drivetrain::test
