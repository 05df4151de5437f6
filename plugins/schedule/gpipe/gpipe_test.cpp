// schedule/gpipe: the suite, its order, and what it says about the run.
#include <drivetrain/plan_record.h>

#include "conformance/schedule/linked.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct Gpipe : ::testing::Test {
  Host host;
  ScheduleMaker make = schedule_maker(host, "gpipe");
};

TEST_F(Gpipe, passes_the_suite) { run_pipeline_suite(make); }
TEST_F(Gpipe, claims_the_axis_of_stages) { check_plan(make); }

TEST_F(Gpipe, runs_all_forwards_first_and_keeps_every_micro_batch) {
  const auto schedule = make(3, 1);
  for (int64_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(computations_of(*schedule, stage, 4), "F0 F1 F2 F3 B0 B1 B2 B3");
    EXPECT_EQ(schedule->slots(stage, 4), 4);
  }
}

TEST_F(Gpipe, says_how_long_stages_wait) {
  const PlanRecord ctx = planned(*make(4, 1), 8);
  ASSERT_EQ(ctx.costs().size(), 1u);
  EXPECT_EQ(ctx.costs()[0].text,
            "stages of equal cost wait for each other 37.5 % of the time they work (4 stages, 8 micro-batches, "
            "backward twice a forward)");
}

}  // namespace
}  // namespace drivetrain
