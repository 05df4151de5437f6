// Which rank's end decides the exit code of launch.
#include "launch/outcome.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

namespace drivetrain::program {
namespace {

RankEnd end(int rank, int code, double after_s, bool killed = false) { return {rank, code, killed, false, after_s}; }
RankEnd made_to_end(int rank, int code, double after_s) { return {rank, code, true, true, after_s}; }

// The order in which ends are noticed must not matter.
int first_rank(std::vector<RankEnd> ends, int signal = 0) {
  const auto first = first_failure(ends, signal);
  std::reverse(ends.begin(), ends.end());
  const auto again = first_failure(ends, signal);
  EXPECT_EQ(first.has_value(), again.has_value());
  if (!first) return -1;
  EXPECT_EQ(first->rank, again->rank);
  return first->rank;
}

TEST(Outcome, nothing_failed) {
  EXPECT_EQ(first_rank({end(0, 0, 1), end(1, 0, 2)}), -1);
  EXPECT_EQ(launch_code({end(0, 0, 1), end(1, 0, 2)}, 0), 0);
}

TEST(Outcome, the_earliest_failure_counts) {
  EXPECT_EQ(first_rank({end(0, 2, 1), end(1, 3, 0.5), end(2, 0, 0.1)}), 1);
  EXPECT_EQ(launch_code({end(0, 2, 1), end(1, 3, 0.5), end(2, 0, 0.1)}, 0), 3);
}

TEST(Outcome, a_lost_peer_is_not_the_first_failure_if_another_rank_failed_otherwise) {
  EXPECT_EQ(first_rank({end(0, 5, 1), end(1, 137, 1.5, true)}), 1);
  EXPECT_EQ(first_rank({end(0, 5, 1), end(1, 7, 1.5), end(2, 5, 0.9)}), 1);
}

TEST(Outcome, a_lost_peer_is_the_failure_if_there_is_no_other) {
  EXPECT_EQ(first_rank({end(0, 5, 2), end(1, 5, 1), made_to_end(2, 143, 3)}), 1);
  EXPECT_EQ(launch_code({end(0, 5, 2), end(1, 5, 1), made_to_end(2, 143, 3)}, 0), 5);
}

TEST(Outcome, ranks_that_stopped_as_asked_are_no_failure) {
  const std::vector<RankEnd> ends{end(0, 143, 1), end(1, 5, 1.1), end(2, 143, 0.9, true)};
  EXPECT_EQ(first_rank(ends, SIGTERM), -1);
  EXPECT_EQ(launch_code(ends, SIGTERM), 143);
}

TEST(Outcome, a_failure_while_stopping_is_one) {
  const std::vector<RankEnd> ends{end(0, 8, 1), end(1, 130, 0.9)};
  EXPECT_EQ(first_rank(ends, SIGINT), 0);
  EXPECT_EQ(launch_code(ends, SIGINT), 8);
}

TEST(Outcome, a_signal_after_the_last_step_leaves_success) {
  EXPECT_EQ(launch_code({end(0, 0, 1), end(1, 0, 1)}, SIGINT), 0);
}

TEST(Outcome, killed_by_the_second_signal_is_the_first_signals_code) {
  EXPECT_EQ(launch_code({made_to_end(0, 137, 1), made_to_end(1, 137, 1)}, SIGINT), 130);
}

TEST(Outcome, ends_are_described_in_words) {
  EXPECT_EQ(describe_end(end(0, 7, 1)), "exit 7 (numeric failure)");
  EXPECT_EQ(describe_end(end(0, 139, 1, true)), "killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(describe_end(end(0, 143, 1)), "exit 143 (stopped by signal 15)");
  EXPECT_EQ(describe_end(end(0, 42, 1)), "exit 42");
}

}  // namespace
}  // namespace drivetrain::program
