// precision/fp16: its types, its loss scale and its options.
#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/precision.h>

#include <drivetrain/testkit/precision/suite.h>
#include "support/plugin_under_test.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

struct Fp16 : ::testing::Test {
  Host host;
  std::string refusal(const std::string& json) {
    return error_of([&] { make_plugin<Precision>(host, "fp16", json); });
  }
  LossScaling scaling(const std::string& json) { return *make_plugin<Precision>(host, "fp16", json)->loss_scaling(); }
};

TEST_F(Fp16, computes_in_float16_and_keeps_float32) {
  const Dtypes types = make_plugin<Precision>(host, "fp16")->dtypes();
  EXPECT_EQ(types.param, at::kHalf);
  for (const at::ScalarType type : {types.grad, types.reduce, types.master}) EXPECT_EQ(type, at::kFloat);
}

TEST_F(Fp16, scales_the_loss_as_deepspeed_does_by_default) {
  const LossScaling scale = scaling("{}");
  EXPECT_TRUE(scale.dynamic);
  EXPECT_EQ(scale.initial, 65536);
  EXPECT_EQ(scale.window, 1000);
  EXPECT_EQ(scale.hysteresis, 2);
  EXPECT_FALSE(scale.consecutive_hysteresis);
  EXPECT_EQ(scale.minimum, 1);
}

TEST_F(Fp16, takes_deepspeeds_options) {
  const LossScaling scale = scaling(
      R"({"auto_cast": true, "loss_scale": 0, "initial_scale_power": 20, "loss_scale_window": 500, "hysteresis": 3,
                                        "consecutive_hysteresis": true, "min_loss_scale": 4, "fp16_master_weights_and_grads": false})");
  EXPECT_EQ(scale.initial, 1048576);
  EXPECT_EQ(scale.window, 500);
  EXPECT_EQ(scale.hysteresis, 3);
  EXPECT_TRUE(scale.consecutive_hysteresis);
  EXPECT_EQ(scale.minimum, 4);
  EXPECT_FALSE(scaling(R"({"loss_scale": 1024})").dynamic);
  EXPECT_EQ(scaling(R"({"loss_scale": 1024})").initial, 1024);
}

TEST_F(Fp16, what_a_static_scale_makes_idle_is_named) {
  PlanRecord ctx({}, {});
  make_plugin<Precision>(host, "fp16", R"({"loss_scale": 128, "loss_scale_window": 7, "min_loss_scale": 2})")
      ->plan(ctx);
  ASSERT_EQ(ctx.no_effects().size(), 2u);
  EXPECT_EQ(ctx.no_effects()[0].text, "fp16.loss_scale_window changes nothing: loss_scale 128 never changes");
  EXPECT_TRUE(ctx.capturables().empty());
}

TEST_F(Fp16, auto_cast_is_named_where_it_is_given) {
  for (const char* json : {R"({"auto_cast": true})", R"({"auto_cast": false, "loss_scale": 128})", "{}"}) {
    PlanRecord ctx({}, {});
    make_plugin<Precision>(host, "fp16", json)->plan(ctx);
    ASSERT_EQ(ctx.no_effects().size(), std::string(json) == "{}" ? 0u : 1u) << json;
    if (std::string(json) != "{}") {
      EXPECT_EQ(ctx.no_effects()[0].text,
                "fp16.auto_cast changes nothing: a model's inputs are tokens, there is nothing to cast");
    }
  }
}

TEST_F(Fp16, refuses_what_makes_no_sense) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"loss_scale": -1})", "loss_scale is -1, but precision/fp16 takes"},
      {R"({"loss_scale": true})", "loss_scale of precision/fp16: expected number, found"},
      {R"({"loss_scale": "dynamic"})", "loss_scale of precision/fp16: expected number, found"},
      {R"({"min_loss_scale": 0})", "min_loss_scale is 0, but precision/fp16 takes"},
      {R"({"hysteresis": 0})", "hysteresis is 0, but precision/fp16 takes"},
      {R"({"loss_scale_window": 0})", "loss_scale_window is 0, but precision/fp16 takes"},
      {R"({"initial_scale_power": 200})", "initial_scale_power is 200, but precision/fp16 takes"},
      {R"({"initial_scale_power": 1.5})", "initial_scale_power"},
      {R"({"initial_scale_power": 2, "min_loss_scale": 16})", "begins at the loss scale 4, below min_loss_scale 16"},
      {R"({"fp16_master_weights_and_grads": true})",
       "fp16_master_weights_and_grads = true is not in this version: masters are float32"},
      {R"({"opt_level": "O2"})", "a word of Apex"},
      {R"({"histeresis": 2})", "did you mean \"hysteresis\""},
  };
  for (const auto& [json, message] : cases)
    EXPECT_NE(refusal(json).find(message), std::string::npos) << json << ": " << refusal(json);
}

TEST(Fp16Run, finds_its_scale_from_one_that_is_far_too_large_and_trains) {
  const TempFolder folder;
  const std::string far = R"("train_steps": 20, "fp16": {"enabled": true, "initial_scale_power": 30, "hysteresis": 1})";
  const RunResult run = run_threads(precision_config(folder, "run", far), 2);
  ASSERT_EQ(run.metrics.size(), 20u);
  EXPECT_TRUE(run.metrics[0].find("skipped")->as_bool());
  EXPECT_FALSE(run.metrics[19].find("skipped")->as_bool());
  double scale = 0x1p30;
  for (const Value& step : run.metrics) {
    EXPECT_EQ(step.find("loss_scale")->as_double(), scale);
    if (step.find("skipped")->as_bool()) {
      EXPECT_TRUE(step.find("grad_norm")->is_null());
      scale /= 2;
    }
  }
  EXPECT_LT(figure(run, 19, "loss"), figure(run, 0, "loss"));
}

TEST(Fp16Run, is_not_for_runs_that_have_bf16_already) {
  const TempFolder folder;
  const std::string two = R"("fp16": {"enabled": true}, "bf16": {"enabled": true})";
  const std::string text = error_of([&] { run_threads(precision_config(folder, "run", two), 1); });
  for (const char* part : {"both choose the precision", "fp16", "bf16"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  const std::string off = R"("train_steps": 1, "fp16": {"enabled": true}, "bf16": {"enabled": false})";
  EXPECT_EQ(error_of([&] { run_threads(precision_config(folder, "off", off), 1); }), "");
}

}  // namespace
}  // namespace drivetrain::test
