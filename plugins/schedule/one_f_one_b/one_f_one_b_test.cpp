// schedule/one_f_one_b: the suite, the published table, and what the options refuse (alike for all schedules of several
// stages).
#include <drivetrain/plan_record.h>

#include "conformance/schedule/linked.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct OneFOneB : ::testing::Test {
  Host host;
  ScheduleMaker make = schedule_maker(host, "one_f_one_b");

  std::string error(const std::string& options) {
    return error_of([&] { make_plugin<Schedule>(host, "one_f_one_b", options); });
  }
};

TEST_F(OneFOneB, passes_the_suite) { run_pipeline_suite(make); }
TEST_F(OneFOneB, claims_the_axis_of_stages) { check_plan(make); }

TEST_F(OneFOneB, is_the_published_order) {
  const auto schedule = make(4, 1);
  const char* const rows[] = {
      "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
      "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
      "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
  };
  for (int64_t stage = 0; stage < 4; ++stage) EXPECT_EQ(computations_of(*schedule, stage, 8), rows[stage]);
  const Timeline line = simulate(*schedule, 8, Pass::train);
  EXPECT_EQ(line.makespan, 33);
  EXPECT_EQ(line.bubble(), 0.375);
}

TEST_F(OneFOneB, keeps_as_many_micro_batches_as_stages_are_left) {
  for (int64_t stages = 2; stages <= kMostStages; ++stages)
    for (const int64_t micro_batches : {1, 3, 8, 20})
      for (int64_t s = 0; s < stages; ++s)
        EXPECT_EQ(make(stages, 1)->slots(s, micro_batches), std::min(stages - s, micro_batches));
}

TEST_F(OneFOneB, puts_messages_beside_the_computations_that_make_and_read_them) {
  const Program middle = make(3, 1)->program(1, 1, Pass::train);
  const Op wanted[] = {Op::load,          Op::recv_forward, Op::forward,      Op::send_forward,
                       Op::recv_backward, Op::backward,     Op::send_backward};
  ASSERT_EQ(middle.size(), std::size(wanted));
  for (size_t i = 0; i < middle.size(); ++i) EXPECT_EQ(middle[i].op, wanted[i]) << i;
}

TEST_F(OneFOneB, counts_what_a_stage_sends) {
  // Two micro-batches of 2 x 32 tokens of 16 floats: the stage in the middle sends each on, and its gradient back.
  const PlanRecord ctx = planned(*make(4, 1), 2);
  ASSERT_EQ(ctx.traffics().size(), 1u);
  EXPECT_EQ(ctx.traffics()[0].axis, "pp");
  EXPECT_EQ(ctx.traffics()[0].bytes, 2 * 2 * (2 * 32 * 16 * 4));
}

TEST_F(OneFOneB, takes_cuts) {
  const auto schedule = make_plugin<Schedule>(host, "one_f_one_b", R"({"stages": 3, "cuts": [1, 4]})");
  EXPECT_EQ(schedule->partition({9, 1, 1, 1, 9}), (std::vector<int64_t>{0, 1, 4}));
  EXPECT_EQ(error_of([&] {
              schedule->partition({1, 1, 1, 1});
            }),
            "cuts ends with unit 4, and the model has 4 units, 0 to 3");
}

TEST_F(OneFOneB, cuts_alike_units_evenly_with_the_larger_pieces_last) {
  EXPECT_EQ(make(4, 1)->partition(std::vector<double>(10, 0.1)), (std::vector<int64_t>{0, 2, 4, 7}));
  EXPECT_EQ(make(3, 1)->partition({0.5, 1, 1, 1, 1, 1.5}), (std::vector<int64_t>{0, 2, 4}));
}

TEST_F(OneFOneB, refuses_cuts_that_are_none) {
  EXPECT_NE(error(R"({"stages": 3, "cuts": [2]})").find("cuts has 1 entries, and 3 stages of 1 piece need 2"),
            std::string::npos);
  EXPECT_NE(error(R"({"stages": 3, "cuts": [2, 2]})").find("cuts must rise from 1"), std::string::npos);
  EXPECT_NE(error(R"({"stages": 2, "cuts": [0]})").find("found 0 after 0"), std::string::npos);
}

TEST_F(OneFOneB, refuses_more_stages_than_units_and_no_stages) {
  EXPECT_EQ(error_of([&] {
              make(4, 1)->partition({1, 1, 1});
            }),
            "4 stages need 4 units at least, and the model has 3; take fewer stages");
  EXPECT_NE(error(R"({"stages": 0})").find("stages"), std::string::npos);
  EXPECT_NE(error("{}").find("stages"), std::string::npos);
  EXPECT_NE(error(R"({"stages": 2, "chunks": 2})").find("chunks"), std::string::npos);
}

TEST_F(OneFOneB, refuses_more_micro_batches_than_it_can_name) {
  const PlanRecord ctx = planned(*make(2, 1), 40000);
  ASSERT_EQ(ctx.refusals().size(), 1u);
  EXPECT_NE(ctx.refusals()[0].text.find("40000 micro-batches in a step are more than the 32767"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
