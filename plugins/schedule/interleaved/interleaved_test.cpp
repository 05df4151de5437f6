// schedule/interleaved: the suite, the published table and bubbles, groups of other sizes than the number of stages.
#include "conformance/schedule/linked.h"

#include <limits>
#include <numeric>

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct Interleaved : ::testing::Test {
  Host host;
  ScheduleMaker make = schedule_maker(host, "interleaved");
};

TEST_F(Interleaved, passes_the_suite) { run_pipeline_suite(make, kMostStages, {2, 3, 4}); }
TEST_F(Interleaved, claims_the_axis_of_stages) { check_plan(make); }

TEST_F(Interleaved, passes_the_suite_with_larger_groups) {
  for (const int64_t group : {5, 6, 7, 9, 13, 40})
    run_pipeline_suite(schedule_maker(host, "interleaved", concat("\"group_size\": ", group)), 5, {2, 3});
}

TEST_F(Interleaved, deals_out_a_group_that_is_too_small) {
  std::string forwards;
  for (const Instr& i : make(4, 2)->program(0, 10, Pass::forward_only))
    if (i.op == Op::forward) forwards += instr_text(i, true) + " ";
  EXPECT_EQ(forwards,
            "F0.0 F1.0 F2.0 F3.0 F4.0 F0.1 F1.1 F2.1 F3.1 F4.1 F5.0 F6.0 F7.0 F8.0 F9.0 F5.1 F6.1 F7.1 F8.1 F9.1 ");
}

TEST_F(Interleaved, refuses_groups_smaller_than_the_number_of_stages) {
  const std::string error = error_of([&] { schedule_maker(host, "interleaved", "\"group_size\": 3")(4, 2); });
  EXPECT_NE(error.find("group_size 3 is less than the 4 stages"), std::string::npos) << error;
}

TEST_F(Interleaved, is_the_published_order) {
  const auto schedule = make(2, 2);
  EXPECT_EQ(computations_of(*schedule, 0, 4),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(computations_of(*schedule, 1, 4),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST_F(Interleaved, sends_groups_through_piece_after_piece) {
  const auto schedule = schedule_maker(host, "interleaved", "\"group_size\": 3")(2, 2);
  std::string forwards;
  for (const Instr& i : schedule->program(0, 5, Pass::forward_only))
    if (i.op == Op::forward) forwards += instr_text(i, true) + " ";
  EXPECT_EQ(forwards, "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 F3.0 F4.0 F3.1 F4.1 ");
}

// Bubble, and what stage 0 keeps in units of a whole stage's activations.
TEST_F(Interleaved, has_the_published_bubbles_and_memory) {
  const Timeline two = simulate(*make(4, 2), 8, Pass::train), four = simulate(*make(4, 4), 8, Pass::train);
  EXPECT_EQ(two.bubble(), 0.1875);
  EXPECT_EQ(static_cast<double>(two.stages[0].peak_in_flight) / 2, 5.5);
  EXPECT_EQ(four.bubble(), 0.09375);
  EXPECT_EQ(static_cast<double>(four.stages[0].peak_in_flight) / 4, 4.75);
  EXPECT_NEAR(simulate(*make(8, 3), 16, Pass::train).bubble(), 0.14583, 5e-6);
}

TEST_F(Interleaved, refuses_more_pieces_than_units) {
  EXPECT_EQ(error_of([&] {
              make(2, 3)->partition({1, 1, 1, 1, 1});
            }),
            "2 stages of 3 chunks need 6 units at least, and the model has 5; take fewer stages or chunks");
  const std::string cuts = error_of([&] { schedule_maker(host, "interleaved", "\"cuts\": [1]")(2, 2); });
  EXPECT_NE(cuts.find("cuts has 1 entries, and 2 stages of 2 pieces need 3"), std::string::npos) << cuts;
}

TEST_F(Interleaved, deals_pieces_round_the_stages) {
  const auto schedule = make(3, 2);
  EXPECT_EQ(schedule->piece(0, 1), 3);
  EXPECT_EQ(schedule->piece(2, 1), 5);
  EXPECT_EQ(schedule->partition(std::vector<double>(6, 1)), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

// Of all cuts of a model with a dear output layer none makes a step more than 1 % shorter.
TEST_F(Interleaved, cuts_for_a_short_step) {
  const auto schedule = make(2, 2);
  std::vector<double> costs(14, 1);
  costs.front() = 0.01, costs.back() = 5.3;
  const auto length = [&](const std::vector<int64_t>& first) {
    std::vector<double> pieces;
    for (size_t i = 0; i < first.size(); ++i) {
      const auto end = i + 1 < first.size() ? costs.begin() + first[i + 1] : costs.end();
      pieces.push_back(std::accumulate(costs.begin() + first[i], end, 0.0));
    }
    return simulate(*schedule, 8, Pass::train, piece_times(pieces)).makespan;
  };
  double best = std::numeric_limits<double>::infinity();
  for (int64_t a = 1; a < 12; ++a)
    for (int64_t b = a + 1; b < 13; ++b)
      for (int64_t c = b + 1; c < 14; ++c) best = std::min(best, length({0, a, b, c}));
  EXPECT_LE(length(schedule->partition(costs)), 1.01 * best);
  EXPECT_GT(length({0, 5, 9, 13}), 1.03 * best);  // pieces as even as can be
}

TEST_F(Interleaved, sends_more_for_more_chunks) {
  // Stage 1 of 4 with 2 chunks sends two activations and two gradients of each micro-batch.
  EXPECT_EQ(planned(*make(4, 2), 2).traffics()[0].bytes, 2 * 4 * (2 * 32 * 16 * 4));
}

}  // namespace
}  // namespace drivetrain
