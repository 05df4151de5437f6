// Words in shared memory that ranks sleep on.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace drivetrain::local {

// One per rank; rung by who changed something that the rank may wait for. Thread: any, in any process that maps it.
//
// The change is written first, then `sleepers` read; the sleeper registers first, then looks for changes. So one of the
// two sees the other, and a ring that nobody needs costs one load.
struct alignas(64) Bell {
  std::atomic<uint32_t> word;
  std::atomic<uint32_t> sleepers;

  // `but`: registered sleepers that need no ring.
  void ring(uint32_t but = 0) {
    if (sleepers.load() <= but) return;
    word.fetch_add(1);
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  // Returns when the word differs from `seen`, after `milliseconds`, or early.
  void sleep(uint32_t seen, int milliseconds) {
    const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1000000L};
    syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
};

class Sleeper {
 public:
  explicit Sleeper(Bell& bell) : bell_(bell) { bell_.sleepers.fetch_add(1); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() { bell_.sleepers.fetch_sub(1); }

 private:
  Bell& bell_;
};

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace drivetrain::local
