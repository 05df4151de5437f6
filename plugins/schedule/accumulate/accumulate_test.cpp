// schedule/accumulate: the suite, of one stage.
#include <drivetrain/plan_record.h>

#include "conformance/schedule/linked.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

TEST(Accumulate, passes_the_suite) {
  Host host;
  run_pipeline_suite([&](int64_t, int64_t) { return make_plugin<Schedule>(host, "accumulate"); }, 1);
}

TEST(Accumulate, says_how_several_stages_are_asked_for) {
  Host host;
  const auto refusal = [&](const std::string& options) {
    return error_of([&] { make_plugin<Schedule>(host, "accumulate", options); });
  };
  for (const char* options : {R"({"stages": 2})", R"({"chunks": 2})", R"({"cuts": [1]})", R"({"group_size": 4})"}) {
    const std::string text = refusal(options);
    EXPECT_NE(text.find(R"(several stages need a type: "pipeline": {"type": "one_f_one_b", "params": {"stages": N}})"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(refusal(R"({"activation_checkpoint_interval": 1})").find("\"activation_checkpointing\""),
            std::string::npos);
}

// What DeepSpeed prints as its own defaults is no pipeline.
TEST(Accumulate, names_DeepSpeeds_keys_that_change_nothing) {
  Host host;
  const auto schedule = make_plugin<Schedule>(host, "accumulate", R"({"partition": "best",
      "seed_layers": false, "activation_checkpoint_interval": 0})");
  ModelFacts model;
  RunFacts run;
  PlanRecord plan(model, run);
  schedule->plan(plan);
  EXPECT_EQ(schedule->stages(), 1);
  ASSERT_EQ(plan.no_effects().size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NE(plan.no_effects()[i].text.find(i == 0 ? "pipeline.partition" : "pipeline.seed_layers"),
              std::string::npos);
}

}  // namespace
}  // namespace drivetrain
