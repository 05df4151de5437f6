// precision/bf16: its types and its options.
#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/precision.h>

#include <drivetrain/testkit/precision/suite.h>
#include "support/plugin_under_test.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

struct Bf16 : ::testing::Test {
  Host host;
  std::string refusal(const std::string& json) {
    return error_of([&] { make_plugin<Precision>(host, "bf16", json); });
  }
};

TEST_F(Bf16, computes_in_bfloat16_and_keeps_float32) {
  const auto bf16 = make_plugin<Precision>(host, "bf16");
  EXPECT_EQ(bf16->dtypes().param, at::kBFloat16);
  for (const at::ScalarType type : {bf16->dtypes().grad, bf16->dtypes().reduce, bf16->dtypes().master})
    EXPECT_EQ(type, at::kFloat);
  EXPECT_FALSE(bf16->loss_scaling().has_value());
}

TEST_F(Bf16, takes_deepspeeds_options_where_they_say_what_happens) {
  EXPECT_EQ(refusal(R"({"immediate_grad_update": false, "check_grad_overflow": true, "bf16_optimizer_states": false})"),
            "");
  EXPECT_TRUE(make_plugin<Precision>(host, "bf16")->skips_not_finite());
  EXPECT_FALSE(make_plugin<Precision>(host, "bf16", R"({"check_grad_overflow": false})")->skips_not_finite());
  EXPECT_NE(refusal(R"({"bf16_master_weights_and_grads": true})")
                .find("bf16_master_weights_and_grads = true is not in this version"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"bf16_optimizer_states": true})").find("moments are float32"), std::string::npos);
  EXPECT_NE(refusal(R"({"enable": true})").find("enable"), std::string::npos);
}

TEST_F(Bf16, a_key_without_effect_is_named_where_it_is_given) {
  const auto idle = [&](const std::string& json) {
    PlanRecord ctx({}, {});
    make_plugin<Precision>(host, "bf16", json)->plan(ctx);
    EXPECT_EQ(ctx.capturables().size(), 1u);
    return ctx.no_effects().empty() ? "" : ctx.no_effects()[0].text;
  };
  EXPECT_EQ(idle(R"({"check_grad_overflow": true})"), "");
  for (const char* json : {R"({"immediate_grad_update": false})", R"({"immediate_grad_update": true})"})
    EXPECT_EQ(idle(json), "bf16.immediate_grad_update changes nothing: every gradient is added to its sum at once");
}

TEST(Bf16Run, goes_by_both_of_deepspeeds_names_and_one_is_enough) {
  const TempFolder folder;
  const RunResult one =
      run_threads(precision_config(folder, "one", R"("bf16": {"enabled": true}, "train_steps": 2)"), 1);
  const RunResult alias =
      run_threads(precision_config(
                      folder, "alias",
                      R"("bfloat16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "train_steps": 2)"),
                  1);
  EXPECT_EQ(figure(one, 1, "loss"), figure(alias, 1, "loss"));
  const std::string both = R"("bf16": {"enabled": true}, "bfloat16": {"enabled": true})";
  EXPECT_NE(error_of([&] { run_threads(precision_config(folder, "run", both), 1); }).find("both choose the precision"),
            std::string::npos);
}

TEST(Bf16Run, agrees_with_what_data_types_says_of_parameters_or_is_refused) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& types) {
    const std::string more = R"("train_steps": 1, "bf16": {"enabled": true}, "data_types": )" + types;
    return error_of([&] { run_threads(precision_config(folder, "run", more), 1); });
  };
  EXPECT_NE(refusal(R"({"param_dtype": "fp32"})")
                .find("data_types.param_dtype is \"fp32\", but parameters are bfloat16, the type of precision/bf16"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"grad_accum_dtype": "half"})").find("gradients are float32 or of the parameters' type"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"param_dtype": "torch.bfloat16"})"), "");
}

}  // namespace
}  // namespace drivetrain::test
