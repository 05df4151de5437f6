// schedule/zero_bubble_h1: the suite, the published table and lengths.
#include "conformance/schedule/linked.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct ZeroBubbleH1 : ::testing::Test {
  Host host;
  ScheduleMaker make = schedule_maker(host, "zero_bubble_h1");

  static std::vector<PieceTime> alike(int64_t pieces, PieceTime time) {
    return std::vector<PieceTime>(static_cast<size_t>(pieces), time);
  }
};

TEST_F(ZeroBubbleH1, passes_the_suite) { run_pipeline_suite(make); }
TEST_F(ZeroBubbleH1, claims_the_axis_of_stages) { check_plan(make); }

TEST_F(ZeroBubbleH1, is_the_published_order_with_both_halves_at_once_on_stage_0) {
  const auto schedule = make(4, 1);
  const char* const rows[] = {
      "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",  // each B with its W
      "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 B6 W5 B7 W6 W7",
      "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 F6 B5 W3 F7 B6 W4 B7 W5 W6 W7",
      "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7",
  };
  for (int64_t stage = 0; stage < 4; ++stage) EXPECT_EQ(computations_of(*schedule, stage, 8), rows[stage]);
  for (const Instr& i : schedule->program(0, 8, Pass::train))
    EXPECT_TRUE(i.op != Op::backward_input && i.op != Op::backward_weight);
  for (const Instr& i : schedule->program(1, 8, Pass::train)) EXPECT_NE(i.op, Op::backward);
}

TEST_F(ZeroBubbleH1, has_the_published_lengths) {
  EXPECT_EQ(simulate(*make(4, 1), 8, Pass::train).makespan, 27);
  EXPECT_EQ(simulate(*make(8, 1), 16, Pass::train).makespan, 55);
  EXPECT_NEAR(simulate(*make(4, 1), 8, Pass::train, alike(4, {1, 1.2, 0.8})).makespan, 28.2, 1e-12);
}

TEST_F(ZeroBubbleH1, keeps_as_much_on_every_stage_as_one_f_one_b_on_its_first) {
  for (int64_t stages = 2; stages <= kMostStages; ++stages)
    for (const int64_t micro_batches : {1, 3, 8, 20})
      for (int64_t s = 0; s < stages; ++s)
        EXPECT_EQ(make(stages, 1)->slots(s, micro_batches), std::min(stages, micro_batches));
}

}  // namespace
}  // namespace drivetrain
