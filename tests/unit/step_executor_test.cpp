// A step's program on one stage, built by hand from two units: no run, no plugins.
#include "step/executor.h"

#include <ATen/TensorOperators.h>
#include <drivetrain/toolkit/units/autograd_unit.h>

#include <cmath>

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

// y = w * x by autograd, with the mean square of y over the tokens as a term.
struct TimesWithTerm : AutogradUnit {
  TimesWithTerm(ParamPtr param, double term_weight) : AutogradUnit("times"), w(std::move(param)), weight(term_weight) {
    w->tensor.set_requires_grad(true);
  }
  std::vector<ParamPtr> params() const override { return {w}; }
  Tensors run(const Tensors& x, StepContext& ctx) override {
    const at::Tensor y = x[0].to(at::kFloat) * w->tensor;
    seen.push_back(ctx.add_loss("square", y.square().mean(), weight));
    ctx.add_loss("square", y.mean(), 0);
    return {y};
  }
  ParamPtr w;
  double weight;
  Tensors seen;  // what the calls returned
};

// Runs units again in backward.
struct KeepsInputs : Recompute {
  Keep keep(const Region&) const override { return Keep::input; }
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

// Micro-batch m has the numbers (m + 1) and 2 (m + 1) and, of its two labels, one or two that count.
TEST_F(ExecutorByHand, terms_of_a_unit_have_the_gradients_of_the_summed_loss) {
  const double weight = 0.25, seed = 0.5;
  const auto load = [](int64_t micro) {
    Batch b = batch(micro, true);
    if (micro == 1) b.labels_BS = at::full({1, 2}, -100, b.tokens_BS.options()), b.labels_BS[0][0] = 1;
    return b;
  };
  double sum = 0, gradient = 0;  // by hand
  for (int64_t micro = 0; micro < 3; ++micro) {
    const double a = static_cast<double>(micro + 1), tokens = micro == 1 ? 1 : 2, mean = (a * a + 4 * a * a) / 2;
    sum += tokens * (100 * mean + 10 * 1.5 * a);
    gradient += seed * (3 * a + weight * tokens * 2 * 10 * mean);
  }
  KeepsInputs again;
  for (const Recompute* policy : {static_cast<const Recompute*>(nullptr), static_cast<const Recompute*>(&again)}) {
    SCOPED_TRACE(policy ? "recomputed" : "kept");
    w->restart_grad();
    const auto unit = std::make_shared<TimesWithTerm>(w, weight);
    units.units[0] = unit;
    ExecutorParts own = parts();
    own.recompute = policy;
    Executor executor(own, state, seed);
    executor.begin(Pass::train, 1, Mode::train);
    EXPECT_EQ(executor.run(load).item<double>(), 10.0 * (3 + 6 + 9)) << "the loss is without terms";
    EXPECT_NEAR(w->grad.item<float>(), gradient, 1e-3);
    ASSERT_EQ(state.loss_terms().sums().size(), 1u);
    EXPECT_NEAR(state.loss_terms().sums().at("loss_terms.square").sum.item<double>(), sum, 1e-2);
    EXPECT_EQ(unit->seen.back().item<double>(), 2 * weight * seed) << "tokens, weight, seed";

    unit->seen.clear();
    executor.begin(Pass::forward_only, 1, Mode::evaluate);
    executor.run(load);
    EXPECT_FALSE(unit->seen.back().defined()) << "not in an evaluation";
    executor.begin(Pass::train, 2, Mode::train);
    EXPECT_TRUE(state.loss_terms().sums().empty()) << "of another step";
  }
}

TEST_F(ExecutorByHand, terms_that_make_no_sense_are_refused) {
  const at::Tensor one = float32({1});
  const auto refusal = [&](const std::string& name, const at::Tensor& value, double weight) {
    return error_text([&] { check_loss_term(name, value, weight); }, ErrorCode::plugin);
  };
  EXPECT_NE(refusal("", one, 1).find("a name of 1 to 63 characters, found 0"), std::string::npos);
  EXPECT_NE(refusal(std::string(64, 'x'), one, 1).find("found 64"), std::string::npos);
  EXPECT_NE(refusal("z", float32({1, 2}), 1).find("add_loss(\"z\"): wanted one element, found a tensor of shape [2]"),
            std::string::npos);
  EXPECT_NE(refusal("z", at::Tensor(), 1).find("no tensor"), std::string::npos);
  EXPECT_NE(refusal("z", one.to(at::kHalf), 1).find("wanted float32 or float64"), std::string::npos);
  EXPECT_NE(refusal("z", one, std::nan("")).find("a finite weight"), std::string::npos);
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
