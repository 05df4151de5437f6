// lr_schedule/warmup_cosine against DeepSpeed's recorded rates, and its options.
#include "conformance/lr_schedule/golden.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct WarmupCosineLR : ::testing::Test {
  Host host;
};

TEST_F(WarmupCosineLR, matches_every_recorded_rate) {
  EXPECT_EQ(run_golden_schedules(host, "warmup_cosine", "WarmupCosineLR"), 3);
}

TEST_F(WarmupCosineLR, takes_the_warmup_options) {
  check_warmup_options(host, "warmup_cosine", parse_json(R"({"total_num_steps": 2000})", "test"));
}

TEST_F(WarmupCosineLR, requires_total_num_steps) { check_total_num_steps_is_required(host, "warmup_cosine"); }

TEST_F(WarmupCosineLR, warns_when_the_full_rate_is_never_reached) {
  make_plugin<LrSchedule>(host, "warmup_cosine", R"({"total_num_steps": 100})");  // warmup_num_steps is 1000 by default
  ASSERT_EQ(host.log.warnings.size(), 1u);
  EXPECT_NE(host.log.warnings[0].find("total_num_steps 100 is less than warmup_num_steps 1000"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
