// strategy/ema in whole runs: the final weights against averages computed by hand of the weights after each step.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>

#include <drivetrain/safetensors.h>

#include "support/small_run.h"

namespace drivetrain::test {
namespace {

using Weights = std::map<std::string, at::Tensor>;

struct Ema : ::testing::Test {
  Weights train(const std::string& sections, int ranks = 1) {
    const RunResult run = train_small(folder, concat("run", runs++), sections, ranks);
    Weights weights;
    const SafetensorsFile file = SafetensorsFile::open(run.weights_file());
    for (const std::string& name : file.names()) weights[name] = file.tensor(name).clone();
    last_figures = run.metrics.size() == 4 ? figures(run) : "";
    return weights;
  }
  // Trained for so many steps, without averages; 0: the initial ones.
  Weights after(int64_t steps) {
    if (steps > 0) return train(concat(R"({"train_steps": )", steps, "}"));
    return train(R"({"train_steps": 1, "optimizer": {"type": "SGD", "params": {"lr": 0}}})");
  }
  // `averaged`: the steps whose weights go into the average, after those of step `first`.
  Weights by_hand(int64_t first, const std::vector<int64_t>& averaged) {
    Weights averages = after(first);
    for (const int64_t step : averaged)
      for (const auto& [name, weights] : after(step)) averages[name].mul_(0.9).add_(at::mul(weights, 1 - 0.9));
    return averages;
  }
  static void expect_equal(const Weights& found, const Weights& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [name, values] : wanted)
      EXPECT_TRUE(at::allclose(found.at(name), values, 1e-6, 1e-8))
          << name << ": " << (found.at(name) - values).abs().max().item<double>();
  }

  const TempFolder folder;
  int runs = 0;
  std::string last_figures;
};

TEST_F(Ema, averages_are_those_computed_by_hand) {
  const Weights wanted = by_hand(0, {1, 2, 3, 4});
  expect_equal(train(R"({"ema": {"decay": 0.9}})"), wanted);
  const std::string with = last_figures;
  after(4);
  EXPECT_EQ(with, last_figures) << "the training is the same";
  for (const auto& [section, ranks] : std::vector<std::pair<std::string, int>>{
           {R"("tensor_parallel": {"type": "megatron", "params": {"size": 2}})", 2},
           {R"("pipeline": {"type": "one_f_one_b", "params": {"stages": 2}})", 2}}) {
    const Weights found = train(concat(R"({"ema": {"decay": 0.9}, )", section, "}"), ranks);
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [name, values] : wanted)
      EXPECT_TRUE(at::allclose(found.at(name), values, 1e-4, 1e-4)) << section << " " << name;
  }
}

TEST_F(Ema, begins_and_moves_when_it_is_told_to) {
  expect_equal(train(R"({"ema": {"decay": 0.9, "update_after_step": 2, "update_every": 2}})"), by_hand(2, {4}));
  expect_equal(train(R"({"ema": {"decay": 0.9, "update_after_step": 4}})"), after(4));
}

TEST_F(Ema, leaves_the_trained_weights_where_it_is_asked_to) {
  expect_equal(train(R"({"ema": {"decay": 0.9, "save_final": false}})"), after(4));
}

// Of the rank that holds most, in a model whose tensors are large beside the gaps between them.
TEST_F(Ema, the_plan_counts_what_a_rank_holds_whoever_shares_the_weights_out) {
  for (const auto& [section, ranks] : std::vector<std::pair<std::string, int>>{
           {"", 1},
           {R"(, "zero_optimization": {"stage": 1})", 2},
           {R"(, "zero_optimization": {"stage": 3})", 2},
           {R"(, "tensor_parallel": {"type": "megatron", "params": {"size": 2}})", 2},
           {R"(, "pipeline": {"type": "one_f_one_b", "params": {"stages": 2}})", 2}}) {
    const RunResult run = train_small(folder, concat("memory", runs++),
                                      concat(R"({"train_steps": 1, "model": {
        "type": "gpt", "params": {"num_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 512,
        "max_position_embeddings": 16}}, "ema": {"decay": 0.9})",
                                             section, "}"),
                                      ranks);
    const Value report = read_json_file(run.folder + "/memory.json");
    double most = 0, planned = 0;
    for (const Value& rank : report.find("ranks")->items()) {
      most = std::max(most, rank.find("optimizer")->as_double());
      planned = std::max(planned, rank.find("planned")->find("optimizer")->as_double());
    }
    EXPECT_GT(most, 0) << section;
    EXPECT_NEAR(planned, most, 0.03 * most) << section << ": AdamW's moments and the averages";
  }
}

TEST(EmaOfAdapters, is_refused_where_the_averages_would_be_written) {
  struct OneParam : Unit {
    explicit OneParam(ParamPtr param) : Unit("block.0"), own(std::move(param)) {}
    std::vector<ParamPtr> params() const override { return {own}; }
    Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
    Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
    ParamPtr own;
  };
  const Host host;
  const auto ema = make_plugin<Strategy>(host, "ema", "{}");
  auto param = std::make_shared<Param>("block.0.a", Layout::whole({2}), InitRule());
  UnitList units{{std::make_shared<OneParam>(param)}};
  EXPECT_EQ(error_of([&] { ema->attach(units); }), "");
  param->role = ParamRole::adapter;
  EXPECT_NE(error_of([&] { ema->attach(units); }).find("block.0.a is an adapter's"), std::string::npos);
  // Then the trained weights are written.
  const auto kept = make_plugin<Strategy>(host, "ema", R"({"save_final": false})");
  EXPECT_EQ(error_of([&] { kept->attach(units); }), "");
}

}  // namespace
}  // namespace drivetrain::test
