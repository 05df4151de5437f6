// Waiting in tests. A test waits for what it is about: a file, a line, an event. A deadline only ends a test that
// hangs: no slow machine reaches it. What the product is told to allow (timeout_s and its like) is short, since tests
// wait for it. DRIVETRAIN_TEST_TIME_SCALE multiplies all of these times; waiting.py is the same for Python.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace drivetrain::test {

inline double scaled(double seconds) {
  const char* const scale = std::getenv("DRIVETRAIN_TEST_TIME_SCALE");
  return scale ? seconds * std::atof(scale) : seconds;
}
// For options that take whole seconds.
inline int64_t whole_seconds(int64_t seconds) {
  return static_cast<int64_t>(std::ceil(scaled(static_cast<double>(seconds))));
}

// Far more than anything takes that a test waits for.
inline double deadline_s() { return scaled(100); }

// The time-out of a wait that something else ends. Where nothing does, the test hangs until CTest ends it.
inline constexpr double kNoTimeout = 86400;

// For what must not happen meanwhile, and for what has to be late. A slow machine makes it longer, and nothing else.
// Waits: all tests do it by this
inline void let_pass(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(scaled(seconds)));  // Waits: all tests do it here
}

// True once the condition holds; false if it does not in time.
inline bool eventually(const std::function<bool()>& condition) {
  using Clock = std::chrono::steady_clock;  // Waits: all tests do it here
  // Waits: a deadline is a time
  const auto end = Clock::now() + std::chrono::duration<double>(deadline_s());
  while (!condition()) {
    if (Clock::now() > end) return false;                       // Waits: a deadline is a time
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // Waits: before the next look
  }
  return true;
}

// That one thread waits for, and another one makes come.
class Moment {
 public:
  struct AtEnd {  // of a block, also by an exception
    Moment& moment;
    ~AtEnd() { moment.come(); }
  };
  void come() { has_come_ = true, has_come_.notify_all(); }
  void wait() const { has_come_.wait(false); }

 private:
  std::atomic<bool> has_come_ = false;
};

// A process that was asleep at so many looks waits for something; one that a busy machine keeps from running is not
// asleep. Looks in between count for nothing: who waits may wake up now and then to see whether its peers live.
inline bool comes_to_wait(pid_t pid) {
  int asleep = 0;
  return eventually([&] {
    std::string stat;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
    asleep += stat.find(") S ") != std::string::npos;
    return asleep >= 60;
  });
}

// A process that stays until it is ended.
inline const std::vector<std::string> kStays = {"/bin/sleep", "100000"};  // Waits: to be ended

// For scripts of bash whose files lie in $D. hold: stays until it is ended; $STAY: the command that does. idle: stays,
// and minds signals. until_it COMMAND...: until that succeeds. all_up: until every rank has come to it.
inline const std::string kShell =
    "STAY='sleep 100000'; NAP='sleep 0.02'; hold() { exec $STAY; }\n"  // Waits: scripts do it by these
    "idle() { while :; do $NAP; done; }\n"
    "until_it() { until \"$@\"; do $NAP; done; }\n"
    "await() { until_it test -e $D/$1; }\n"
    "gone() { [ -s $1 ] && ! kill -0 $(cat $1); } 2> /dev/null\n"
    "stopped() { grep -q ') T ' /proc/$(cat $1)/stat; } 2> /dev/null\n"
    "has_lines() { [ $(cat $2 | wc -l) -ge $1 ]; } 2> /dev/null\n"
    "all_up() { echo >> $D/up; until_it has_lines $WORLD_SIZE $D/up; }\n";

}  // namespace drivetrain::test
