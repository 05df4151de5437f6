// lr_schedule/warmup against DeepSpeed's recorded rates, and its options.
#include "conformance/lr_schedule/golden.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct WarmupLR : ::testing::Test {
  Host host;
};

TEST_F(WarmupLR, matches_every_recorded_rate) { EXPECT_EQ(run_golden_schedules(host, "warmup", "WarmupLR"), 5); }

TEST_F(WarmupLR, takes_the_warmup_options) { check_warmup_options(host, "warmup", parse_json(R"({})", "test")); }

}  // namespace
}  // namespace drivetrain
