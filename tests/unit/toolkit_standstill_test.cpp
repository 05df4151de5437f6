// Time in which this process stood still moves the deadlines of others.
#include <drivetrain/toolkit/standstill.h>

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "support/waiting.h"

namespace drivetrain::test {
namespace {

using Clock = std::chrono::steady_clock;  // Waits: deadlines are what is tested

// Waits: as above
Clock::time_point in_a_second() { return Clock::now() + std::chrono::seconds(1); }

// In place of a condition variable: a process that is stopped in its first wait, for longer than it may wait.
struct Stopped {
  int waits = 0;
  template <class Lock>
  void wait_until(Lock&, Clock::time_point) {
    let_pass(++waits == 1 ? 1.5 : 0.01);  // Waits: longer than a second counts as standing still
  }
};

TEST(Standstill, an_answer_that_came_while_the_process_stood_still_is_taken) {
  Stopped changed;
  int lock = 0;
  EXPECT_TRUE(wait_patiently(changed, lock, in_a_second(), [&] { return changed.waits > 0; }));
}

TEST(Standstill, behind_it_there_is_still_time) {
  Stopped changed;
  int lock = 0;
  EXPECT_FALSE(wait_patiently(changed, lock, in_a_second(), [] { return false; }));
  EXPECT_GT(changed.waits, 1);
}

TEST(Standstill, without_it_a_deadline_is_one) {
  std::condition_variable changed;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  EXPECT_TRUE(wait_patiently(changed, lock, Clock::time_point(), [] { return true; }));
  EXPECT_FALSE(wait_patiently(changed, lock, Clock::time_point(), [] { return false; }));
}

}  // namespace
}  // namespace drivetrain::test
