// The groups of `param_groups` at the end of a step: rows of UpdateArgs::hyper, what the schedule does to them, and
// AdamW under them against its formula, group by group.
#include <cmath>
#include <map>

#include "step/finish.h"
#include "step/step_state.h"
#include "support/step_by_hand.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

ParamPtr parameter(const char* name, std::vector<int64_t> shape, float value) {
  auto param = std::make_shared<Param>(name, Layout::whole(std::move(shape)), InitRule());
  param->tensor = at::full(param->layout.global_shape, value);
  param->grad = at::zeros_like(param->tensor);
  return param;
}

TEST(ParamGroups, without_any_rows_are_the_optimizers_groups) {
  const ParamGroups none;
  const std::vector<Hyper> base = {{1, 0.1, 0.9}, {1, 0, 0.9}}, now = {{0.3, 0.1, 0.8}, {0.3, 0, 0.8}};
  EXPECT_EQ(none.rows(2), 2);
  EXPECT_EQ(none.row_of(*parameter("w", {2}, 0), 1, 2), 1);
  const std::vector<Hyper> rows = none.hypers(base, now);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].lr, 0.3);
  EXPECT_EQ(rows[1].momentum, 0.8);
}

TEST(ParamGroups, follow_the_schedule_in_proportion_and_keep_what_they_do_not_set) {
  const ParamPtr a = parameter("a", {2, 2}, 0), b = parameter("b", {2}, 0);
  ParamGroups groups;
  groups.add({.lr = 0.5, .weight_decay = {}}, {a});
  groups.add({.lr = {}, .weight_decay = 0.25}, {b});
  EXPECT_EQ(groups.rows(2), 6);
  EXPECT_EQ(groups.row_of(*parameter("c", {2}, 0), 1, 2), 1);
  EXPECT_EQ(groups.row_of(*a, 0, 2), 2);
  EXPECT_EQ(groups.row_of(*b, 1, 2), 5);
  EXPECT_TRUE(groups.sets_weight_decay(*b));
  EXPECT_FALSE(groups.sets_weight_decay(*a));
  // A schedule that has halved the rate.
  const std::vector<Hyper> rows = groups.hypers({{2, 0.1, 0.9}, {2, 0, 0.9}}, {{1, 0.1, 0.9}, {1, 0, 0.9}});
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[2].lr, 0.25);
  EXPECT_EQ(rows[2].weight_decay, 0.1);
  EXPECT_EQ(rows[3].weight_decay, 0);
  EXPECT_EQ(rows[5].lr, 1);
  EXPECT_EQ(rows[5].weight_decay, 0.25) << "of a tensor that the optimizer would not decay";
}

// 3/4 of the rate of the step before.
struct Shrinking : LrSchedule {
  Hyper at(const Progress& progress, const Hyper& base) const override {
    Hyper now = base;
    now.lr = base.lr * std::pow(0.75, static_cast<double>(progress.updates));
    return now;
  }
};

// One element of AdamW, as torch.optim.AdamW has it for a group of lr and weight_decay.
struct AdamWElement {
  double value, lr, decay, m = 0, v = 0;
  void update(double grad, int step) {
    constexpr double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    const double rate = lr * std::pow(0.75, step - 1);
    value -= rate * decay * value;
    m = beta1 * m + (1 - beta1) * grad, v = beta2 * v + (1 - beta2) * grad * grad;
    const double denominator = std::sqrt(v / (1 - std::pow(beta2, step))) + eps;
    value -= rate / (1 - std::pow(beta1, step)) * m / denominator;
  }
};

TEST(ParamGroups, give_adamw_what_its_formula_gives_in_groups_of_torchs) {
  const std::vector<ParamPtr> model = {parameter("own.weight", {2, 2}, 1), parameter("own.bias", {2}, 2),
                                       parameter("slow.weight", {2, 2}, 3), parameter("decayed.bias", {2}, -1)};
  // The optimizer's lr 0.01 and decay 0.1 of matrices alone; then lr 0.002, decay 0.1; then lr 0.03, decay 0.5.
  std::map<std::string, AdamWElement> wanted = {{"own.weight", {1, 0.01, 0.1}},
                                                {"own.bias", {2, 0.01, 0}},
                                                {"slow.weight", {3, 0.002, 0.1}},
                                                {"decayed.bias", {-1, 0.03, 0.5}}};
  ParamGroups groups;
  groups.add({.lr = 0.002, .weight_decay = {}}, {model[2]});
  groups.add({.lr = 0.03, .weight_decay = 0.5}, {model[3]});

  KeptLines log;
  const auto store = make_local_store();
  const Services services{.log = log, .store = *store, .rank = 0, .world_size = 1, .local_rank = 0, .local_size = 1};
  Problems problems;
  const auto options = built_plugins()
                           .options(Optimizer::kKind, "adamw")
                           .parse(parse_json(R"({"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1})", "test"),
                                  "optimizer/adamw", "params", problems);
  problems.throw_if_any();
  const auto optimizer = built_plugins().create<Optimizer>("adamw", options.get(), services);

  std::vector<Trainables> chunks(1);
  for (const ParamPtr& param : model) {
    Trainable t;
    t.param = param, t.layout = param->layout, t.value = t.working = param->tensor, t.grad = param->grad;
    chunks[0].push_back(t);
  }
  const Mesh mesh{{}, 0, 1, nullptr};
  const Strategies strategies;
  const Shrinking rate;
  StepState state{1};
  Finish finish({.chunks = chunks,
                 .model_params = model,
                 .mesh = mesh,
                 .strategies = strategies,
                 .optimizer = *optimizer,
                 .lr_schedule = rate,
                 .log = log,
                 .train_batch_size = 1,
                 .seq_length = 1,
                 .param_groups = groups});
  finish.start();
  for (int step = 1; step <= 5; ++step) {
    for (size_t i = 0; i < model.size(); ++i) {
      const double grad = (step % 2 == 0 ? -0.5 : 1.0) * (1.0 + static_cast<double>(i));
      chunks[0][i].grad.fill_(grad);
      wanted.at(model[i]->name).update(grad, step);
    }
    finish.sum_gradients(at::full({}, 1.0, at::TensorOptions(at::kDouble)), state);
    EXPECT_DOUBLE_EQ(finish.agree(step, {1}, {}).lr, 0.01 * std::pow(0.75, step - 1)) << "of those in no group";
    finish.update(state);
    finish.updated();
    for (const ParamPtr& param : model) {
      const double found = param->tensor.view({-1})[0].item<double>(), right = wanted.at(param->name).value;
      EXPECT_NEAR(found, right, 2e-6 * std::abs(right)) << param->name << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace drivetrain::test
