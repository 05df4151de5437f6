// lr_schedule/warmup_decay against DeepSpeed's recorded rates, and its options.
#include "conformance/lr_schedule/golden.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct WarmupDecayLR : ::testing::Test {
  Host host;
};

TEST_F(WarmupDecayLR, matches_every_recorded_rate) {
  EXPECT_EQ(run_golden_schedules(host, "warmup_decay", "WarmupDecayLR"), 4);
}

TEST_F(WarmupDecayLR, takes_the_warmup_options) {
  check_warmup_options(host, "warmup_decay", parse_json(R"({"total_num_steps": 2000})", "test"));
}

TEST_F(WarmupDecayLR, requires_total_num_steps) { check_total_num_steps_is_required(host, "warmup_decay"); }

TEST_F(WarmupDecayLR, warns_when_the_full_rate_is_never_reached) {
  make_plugin<LrSchedule>(host, "warmup_decay", R"({"total_num_steps": 100})");  // warmup_num_steps is 1000 by default
  ASSERT_EQ(host.log.warnings.size(), 1u);
  EXPECT_NE(host.log.warnings[0].find("total_num_steps 100 is less than warmup_num_steps 1000"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
