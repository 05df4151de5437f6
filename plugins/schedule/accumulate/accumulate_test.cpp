// schedule/accumulate: the suite, of one stage.
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
  for (const char* options :
       {R"({"stages": 2})", R"({"stages": "auto"})", R"({"chunks": 2})", R"({"cuts": [1]})", R"({"group_size": 4})"}) {
    const std::string text = refusal(options);
    EXPECT_NE(text.find(R"(several stages need a type: "pipeline": {"type": "one_f_one_b", "params": {"stages": N}})"),
              std::string::npos)
        << text;
  }
  const std::string rest =
      refusal(R"({"partition": "best", "seed_layers": false, "activation_checkpoint_interval": 0})");
  for (const char* part : {"one stage is not cut", "the same for any number of stages", "\"activation_checkpointing\""})
    EXPECT_NE(rest.find(part), std::string::npos) << rest;
}

}  // namespace
}  // namespace drivetrain
