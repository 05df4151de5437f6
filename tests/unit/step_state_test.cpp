// What units learn about the step they are in: the recompute policy's word, random numbers, figures.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include "step/step_state.h"

namespace drivetrain {
namespace {

struct NamedUnit : Unit {
  using Unit::Unit;
  std::vector<ParamPtr> params() const override { return {}; }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
};

// Keeps nothing of one region of one unit.
struct OneRegion : Recompute {
  Keep keep(const Region& region) const override {
    return region.unit == "block.1" && region.name == "mlp.act" ? Keep::nothing : Keep::all;
  }
};

std::vector<Visit> visits(int64_t units) {
  std::vector<Visit> list(units);
  for (int64_t u = 0; u < units; ++u) list[u].unit = u;
  return list;
}

struct State : testing::Test {
  UnitList units{{std::make_shared<NamedUnit>("block.0"), std::make_shared<NamedUnit>("block.1")}};
  OneRegion policy;
};

TEST_F(State, asks_the_policy_about_the_unit_of_the_current_visit) {
  StepState state(1, &units, &policy);
  state.begin(1, Mode::train, visits(2));
  EXPECT_EQ(state.keep("mlp.act"), Keep::all);
  state.next_visit();
  EXPECT_EQ(state.keep("mlp.act"), Keep::nothing);
  EXPECT_EQ(state.keep("norm"), Keep::all);
}

TEST_F(State, keeps_everything_without_a_policy) {
  StepState state(1, &units);
  state.begin(1, Mode::train, visits(2));
  state.next_visit();
  EXPECT_EQ(state.keep("mlp.act"), Keep::all);
}

TEST_F(State, a_recorded_training_step_gives_no_random_numbers) {
  StepState state(1, &units);
  state.refuse_random();
  state.begin(1, Mode::train, visits(1));
  state.set_batch(0, {});
  try {
    state.random("block.0.dropout1");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("random numbers for block.0.dropout1 in a step that is recorded"),
              std::string::npos);
  }
}

TEST_F(State, figures_are_those_of_the_last_training_step) {
  StepState state(1, &units);
  const auto figure = [](double x) { return at::full({}, x, at::kDouble); };
  state.begin(1, Mode::train, visits(1));
  state.metric("a", figure(1));
  state.begin(1, Mode::evaluate, visits(1));
  state.metric("b", figure(2));
  ASSERT_EQ(state.metrics().size(), 1u);
  state.begin(2, Mode::train, visits(1), /*replayed=*/true);  // the device writes it again
  EXPECT_EQ(state.metrics().at("a").sum.item<double>(), 1);
  state.begin(3, Mode::train, visits(1));
  EXPECT_TRUE(state.metrics().empty());
}

TEST_F(State, a_figure_of_several_calls_is_their_sum_and_number) {
  StepState state(1, &units);
  state.begin(1, Mode::train, visits(1));
  for (const double x : {1.0, 4.0}) state.metric("a", at::full({1}, x, at::kFloat));
  EXPECT_EQ(state.metrics().at("a").sum.item<double>(), 5);
  EXPECT_EQ(state.metrics().at("a").count, 2);
  EXPECT_EQ(state.metrics().at("a").sum.dim(), 0);
}

TEST_F(State, figures_with_the_runtimes_names_or_of_several_elements_are_refused) {
  StepState state(1, &units);
  state.begin(1, Mode::train, visits(1));
  const auto refusal = [&](const std::string& name, const at::Tensor& figure) -> std::string {
    try {
      state.metric(name, figure);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plugin);
      return e.what();
    }
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal("loss", at::full({}, 1.0)), "metric(\"loss\"): the runtime has a figure of this name");
  has(refusal("valid_loss", at::full({}, 1.0)), "such as \"my_valid_loss\"");
  has(refusal("mine", at::full({2, 3}, 1.0)), "metric(\"mine\"): wanted one element, found a tensor of shape [2, 3]");
  has(refusal("mine", at::Tensor()), "found no tensor");
  has(refusal("", at::full({}, 1.0)), "a figure needs a name");
  has(refusal(std::string(80, 'x'), at::full({}, 1.0)), "a name of 1 to 79 characters");
  EXPECT_EQ(refusal(std::string(79, 'x'), at::full({}, 1.0)), "");
  EXPECT_EQ(refusal("mine", at::full({1}, 1.0)), "");
}

}  // namespace
}  // namespace drivetrain
