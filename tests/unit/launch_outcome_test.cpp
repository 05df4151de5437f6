// Which rank's end decides the exit code of launch.
#include "launch/outcome.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "launch/rank_errors.h"

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

TEST(Outcome, a_rank_that_did_not_go_on_is_the_cause_of_lost_peers_and_not_of_other_failures) {
  RankEnd stopped = made_to_end(1, 5, 9);
  stopped.fault = "stopped by signal 19";
  EXPECT_EQ(first_rank({end(0, 5, 4), stopped, end(2, 5, 5)}), 1);
  EXPECT_EQ(first_rank({end(0, 0, 4), stopped}), 1);
  EXPECT_EQ(launch_code({end(0, 0, 4), stopped}, 0), 5);
  EXPECT_EQ(first_rank({end(0, 7, 10), stopped, end(2, 5, 5)}), 0);
  EXPECT_EQ(first_rank({end(0, 143, 4), stopped}, SIGTERM), 1);
  EXPECT_EQ(describe_end(stopped), "stopped by signal 19");
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

TEST(Outcome, errors_are_the_same_where_their_cause_is) {
  EXPECT_EQ(cause_of("error: call #6 of group \"dp\": rank 2 (pid 7) died\nmore"), "rank 2 (pid 7) died");
  EXPECT_EQ(cause_of("error: disk is full\nmore"), "error: disk is full\nmore");
  const auto same = same_errors({"a: rank 2 died", "", "b: rank 2 died", "c: rank 1 died", "d: rank 2 died"});
  ASSERT_EQ(same.size(), 2u);
  EXPECT_EQ(same[0].ranks, (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(same[0].note(), "2 other ranks said the same as rank 0");
  EXPECT_EQ(same[1].note(), "");
}

TEST(Outcome, ends_are_described_in_words) {
  EXPECT_EQ(describe_end(end(0, 7, 1)), "exit 7 (numeric failure)");
  EXPECT_EQ(describe_end(end(0, 139, 1, true)), "killed by signal 11 (Segmentation fault)");
  EXPECT_NE(describe_end(end(0, 135, 1, true)).find("/dev/shm"), std::string::npos);  // SIGBUS
  EXPECT_NE(describe_end(end(0, 137, 1, true)).find("full memory"), std::string::npos);
  EXPECT_EQ(describe_end(end(0, 143, 1)), "exit 143 (stopped by signal 15)");
  EXPECT_EQ(describe_end(end(0, 42, 1)), "exit 42");
}

}  // namespace
}  // namespace drivetrain::program
