// Which failures are worth another start, how many of them, and on how many ranks. No processes.
#include <gtest/gtest.h>

#include <csignal>
#include <map>

#include "launch/fewer_ranks.h"
#include "launch/restart_count.h"

namespace drivetrain::program {
namespace {

RankEnd exited(int code) { return {.rank = 1, .code = code}; }
RankEnd killed_by(int signal) { return {.rank = 1, .code = 128 + signal, .killed = true}; }

TEST(MayPass, what_is_lost_is_started_again_and_what_is_wrong_is_not) {
  for (const bool begun : {false, true}) {
    for (const int code : {1, 5}) EXPECT_TRUE(may_pass(exited(code), begun)) << code;
    for (const int code : {2, 3, 6, 7, 75, 127, 128 + SIGTERM, 128 + SIGINT, 128 + SIGUSR1})
      EXPECT_FALSE(may_pass(exited(code), begun)) << code;
    for (const int code : {4, 8}) EXPECT_EQ(may_pass(exited(code), begun), begun) << code;
    for (const int signal : {SIGKILL, SIGSEGV, SIGBUS, SIGABRT}) EXPECT_TRUE(may_pass(killed_by(signal), begun));
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) EXPECT_FALSE(may_pass(killed_by(signal), begun));
    EXPECT_TRUE(may_pass({.rank = 1, .code = 5, .killed = true, .fault = "did not go on"}, begun));
  }
}

Failure failure_of(int slot, int code = 5) { return {"rank " + std::to_string(slot), code, slot}; }

TEST(RestartCount, only_failures_without_a_newer_checkpoint_count) {
  RestartCount count(2, 0.2, 5);
  for (int i = 0; i < 10; ++i) {
    count.failed(failure_of(i), true);
    EXPECT_EQ(count.number(), 1);
    EXPECT_FALSE(count.used_up());
  }
  count.failed(failure_of(20), false);
  EXPECT_FALSE(count.used_up());
  count.failed(failure_of(21), false);
  EXPECT_TRUE(count.used_up());
  EXPECT_EQ(count.first().slot, 9);  // the first since the newest checkpoint
  EXPECT_EQ(count.last().slot, 21);
}

TEST(RestartCount, pauses_double_up_to_a_limit_and_begin_anew_with_the_count) {
  RestartCount count(100, 0.2, 5);
  std::vector<double> pauses;
  for (int i = 0; i < 7; ++i) count.failed(failure_of(0), false), pauses.push_back(count.pause_s());
  EXPECT_EQ(pauses, (std::vector<double>{0.2, 0.4, 0.8, 1.6, 3.2, 5, 5}));
  count.failed(failure_of(0), true);
  EXPECT_EQ(count.pause_s(), 0.2);
}

TEST(RestartCount, a_slot_that_fails_twice_in_a_row_is_told_from_two_that_fail_once) {
  RestartCount count(10, 0.2, 5);
  count.failed(failure_of(1), false), count.failed(failure_of(2), false), count.failed(failure_of(1), false);
  EXPECT_FALSE(count.same_slot_again());
  count.failed(failure_of(1), true);  // it got further in between
  EXPECT_FALSE(count.same_slot_again());
  count.failed(failure_of(1), false);
  EXPECT_TRUE(count.same_slot_again());
  count.begin_anew();
  count.failed(failure_of(1), false);
  EXPECT_FALSE(count.same_slot_again());
  EXPECT_EQ(count.number(), 1);
  EXPECT_EQ(count.done(), 2);
}

// Answers of a config that divides `batch` sequences.
AskPlan dividing(int64_t batch, std::vector<int>& asked) {
  return [batch, &asked](int ranks) {
    asked.push_back(ranks);
    return batch % ranks == 0 ? PlanAnswer{.refusal = "", .sequences = batch} : PlanAnswer{.refusal = "no share"};
  };
}

// Descending.
std::vector<int> numbers(int most, int least) {
  std::vector<int> list;
  for (int ranks = most; ranks >= least; --ranks) list.push_back(ranks);
  return list;
}

TEST(FewerRanks, the_first_number_that_has_a_plan_is_taken_and_those_before_it_say_why_not) {
  std::vector<int> asked;
  const FewerRanks found = fewer_ranks(12, numbers(11, 2), dividing(12, asked));
  EXPECT_EQ(found.ranks, 6);
  EXPECT_EQ(asked, (std::vector<int>{12, 11, 10, 9, 8, 7, 6}));
  EXPECT_EQ(found.refused,
            "11 ranks: no share; 10 ranks: no share; 9 ranks: no share; 8 ranks: no share; 7 ranks: no share");
}

TEST(FewerRanks, no_other_numbers_are_tried) {
  std::vector<int> asked;
  const FewerRanks found = fewer_ranks(12, numbers(11, 7), dividing(12, asked));
  EXPECT_EQ(found.ranks, 0);
  EXPECT_EQ(asked.back(), 7);
  EXPECT_EQ(fewer_ranks(12, {}, dividing(12, asked)).refused, "");
}

TEST(FewerRanks, the_global_batch_stays_what_it_was) {
  const FewerRanks found = fewer_ranks(4, numbers(3, 2), [](int ranks) { return PlanAnswer{.sequences = 2 * ranks}; });
  EXPECT_EQ(found.ranks, 0);
  EXPECT_NE(found.refused.find("3 ranks: the global batch would have 6 sequences instead of 8"), std::string::npos);
  EXPECT_NE(found.refused.find("train_batch_size"), std::string::npos);
}

TEST(FewerRanks, a_signal_ends_the_questions) {
  int questions = 0;
  const FewerRanks found =
      fewer_ranks(4, numbers(3, 1), [&](int) { return PlanAnswer{.signal = ++questions == 2 ? SIGINT : 0}; });
  EXPECT_EQ(found.signal, SIGINT);
  EXPECT_EQ(questions, 2);
}

}  // namespace
}  // namespace drivetrain::program
