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

// Changes with every ring. Thread: any, in any process that maps it.
struct alignas(64) Bell {
  std::atomic<uint32_t> word;
  std::atomic<uint32_t> sleepers;

  // What was written before the ring is seen by who saw the word change.
  void ring() {
    word.fetch_add(1);
    if (sleepers.load() != 0) syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  bool rang_since(uint32_t seen) const { return word.load() != seen; }
  // Returns when the word differs from `seen`, after `milliseconds`, or early.
  void sleep(uint32_t seen, int milliseconds) {
    const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1000000L};
    sleepers.fetch_add(1);
    syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
    sleepers.fetch_sub(1);
  }
};

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace drivetrain::local
