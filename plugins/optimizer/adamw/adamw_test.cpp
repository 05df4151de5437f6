// optimizer/adamw and optimizer/adam: PyTorch's recorded numbers, and their options.
#include "conformance/optimizer/golden.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct AdamW : ::testing::Test {
  Host host;
  std::string refusal(const std::string& name, const std::string& json) {
    return error_of([&] { make_plugin<Optimizer>(host, name, json); });
  }
};

const std::map<std::string, std::string> kMoments = {{"m", "exp_avg"}, {"v", "exp_avg_sq"}};

TEST_F(AdamW, matches_the_recorded_adamw) { run_golden_optimizer(host, "adamw", "adamw", kMoments); }

TEST_F(AdamW, matches_the_recorded_adam_with_l2) {
  run_golden_optimizer(host, "adam", "adam_l2", kMoments, R"({"adam_w_mode": false})");
}

TEST_F(AdamW, type_adam_is_decoupled_by_default_as_in_deepspeed) {
  run_golden_optimizer(host, "adam", "adamw", kMoments);
}

TEST_F(AdamW, type_adamw_ignores_adam_w_mode_and_says_so) {
  run_golden_optimizer(host, "adamw", "adamw", kMoments, R"({"adam_w_mode": false})");
  ASSERT_FALSE(host.log.warnings.empty());
  EXPECT_NE(host.log.warnings[0].find("adam_w_mode = false has no effect with type AdamW"), std::string::npos);
}

TEST_F(AdamW, without_bias_correction_the_moments_are_used_as_they_are) {
  auto optimizer = make_plugin<Optimizer>(
      host, "adamw", R"({"lr": 0.5, "betas": [0.9, 0.99], "eps": 0.125, "bias_correction": false})");
  const Trainable t = trainable(*optimizer, test_param("w", {1, 1}), uneven_numbers(1, 1, at::kDouble));
  const double start = t.value.item<double>();
  optimizer->init({t});
  t.grad.fill_(2);
  optimizer->update({t}, update_args(*optimizer, 0));
  EXPECT_NEAR(t.value.item<double>(), start - 0.5 * 0.2 / (std::sqrt(0.04) + 0.125), 1e-15);
}

TEST_F(AdamW, decays_matrices_only_unless_told_otherwise) {
  const auto note = [&](const std::string& json) {
    auto optimizer = make_plugin<Optimizer>(host, "adamw", json);
    return optimizer->difference_note({test_param("w", {2, 2}), test_param("b", {2}), test_param("e", {4, 2})});
  };
  auto ours = make_plugin<Optimizer>(host, "adamw", R"({"weight_decay": 0.1})");
  ASSERT_EQ(ours->groups().size(), 2u);
  EXPECT_EQ(ours->groups()[ours->group_of(*test_param("w", {2, 2}))].weight_decay, 0.1);
  EXPECT_EQ(ours->groups()[ours->group_of(*test_param("b", {2}))].weight_decay, 0);
  EXPECT_EQ(note(R"({"weight_decay": 0.1})"),
            "DeepSpeed would decay all 3 tensors of this file; ours decays the 2 with two or more dimensions "
            "(optimizer.params.decay = all gives DeepSpeed's)");
  EXPECT_EQ(note(R"({"weight_decay": 0})"), "");
  EXPECT_EQ(note(R"({"weight_decay": 0.1, "decay": "all"})"), "");
  EXPECT_EQ(make_plugin<Optimizer>(host, "adamw", R"({"decay": "all"})")->groups().size(), 1u);
}

TEST_F(AdamW, a_schedule_can_move_rate_decay_and_beta1) {
  auto optimizer = make_plugin<Optimizer>(host, "adamw", R"({"betas": [0.5, 0.5], "eps": 0})");
  const Trainable t = trainable(*optimizer, test_param("w", {1, 1}), uneven_numbers(1, 1, at::kDouble));
  t.value.fill_(1), t.grad.fill_(3);
  optimizer->init({t});
  UpdateArgs args = update_args(*optimizer, 0);
  double* row = args.hyper.mutable_data_ptr<double>();
  row[0] = 0.25, row[1] = 0.5, row[2] = 0.75;
  optimizer->update({t}, args);
  EXPECT_NEAR(t.value.item<double>(), 1 - 0.25 * 0.5 - 0.25, 1e-15);  // the first Adam step has length lr
  Keeper keeper;
  optimizer->state(keeper);
  EXPECT_NEAR(keeper.tensors.at("w.exp_avg@0").item<double>(), 0.25 * 3, 1e-15);
}

// One tensor with a gradient, a working copy and a value of its own dtype, after one update.
Trainable updated(Optimizer& optimizer, at::ScalarType grad, at::ScalarType working) {
  Trainable t = trainable(optimizer, test_param("w", {301, 333}), uneven_numbers(301 * 333, 1));
  t.working = t.value.to(working, /*non_blocking=*/false, /*copy=*/true);
  t.grad = uneven_numbers(301 * 333, 2).to(at::kBFloat16).to(grad);
  optimizer.init({t});
  optimizer.update({t}, update_args(optimizer, 0, 0.5));
  return t;
}

TEST_F(AdamW, plans_the_host_memory_of_what_it_sends_in_sixteen_bits) {
  const auto optimizer = make_plugin<Optimizer>(host, "adamw", "{}");
  EXPECT_EQ(optimizer->host_bytes_per_element(at::kBFloat16), 2);
  EXPECT_EQ(optimizer->host_bytes_per_element(at::kHalf), 2);
  EXPECT_EQ(optimizer->host_bytes_per_element(at::kFloat), 0);
}

TEST_F(AdamW, gradients_and_working_copies_may_have_any_floating_dtype) {
  const auto after = [&](at::ScalarType grad, at::ScalarType working) {
    return updated(*make_plugin<Optimizer>(host, "adamw", "{}"), grad, working);
  };
  const Trainable usual = after(at::kFloat, at::kFloat);
  EXPECT_TRUE(at::equal(usual.working, usual.value));
  for (const at::ScalarType grad : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const at::ScalarType working : {at::kBFloat16, at::kHalf, at::kDouble}) {
      const Trainable t = after(grad, working);
      EXPECT_TRUE(at::equal(t.value, usual.value)) << grad;
      EXPECT_TRUE(at::equal(t.working, t.value.to(working))) << grad << " " << working;
    }
  }
}

TEST_F(AdamW, refuses_values_it_cannot_update) {
  auto optimizer = make_plugin<Optimizer>(host, "adamw", "{}");
  Trainable t = trainable(*optimizer, test_param("w", {4}), uneven_numbers(4, 1));
  t.value = t.value.to(at::kBFloat16);
  EXPECT_NE(error_of([&] {
              optimizer->init({t});
            }).find("optimizer/adamw updates float32 values; those of w are BFloat16 on cpu"),
            std::string::npos);
  t.value = at::empty({4}, at::TensorOptions().device(at::kMeta));
  EXPECT_NE(error_of([&] { optimizer->init({t}); }).find("w is on meta"), std::string::npos);
}

TEST_F(AdamW, refuses_what_it_does_not_do) {
  EXPECT_NE(refusal("adamw", R"({"amsgrad": true})").find("optimizer/adamw: amsgrad is not in this version"),
            std::string::npos);
  EXPECT_EQ(refusal("adamw", R"({"amsgrad": false, "torch_adam": true, "fp32_optimizer_states": true})"), "");
  EXPECT_NE(refusal("adamw", R"({"fp32_optimizer_states": false})").find("fp32_optimizer_states = false"),
            std::string::npos);
  EXPECT_NE(refusal("adam", R"({"max_grad_norm": 1})").find("use gradient_clipping"), std::string::npos);
  EXPECT_NE(refusal("adamw", R"({"betas": [0.9, 1]})").find("betas must be below 1"), std::string::npos);
  EXPECT_NE(refusal("adamw", R"({"betas": [0.9]})").find("expected 2 elements, found 1"), std::string::npos);
  EXPECT_NE(refusal("adamw", R"({"lr": "auto"})").find("there is no rule for \"auto\" here"), std::string::npos);
  EXPECT_NE(refusal("adamw", R"({"weight_decays": 0.1})").find("did you mean \"weight_decay\""), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
