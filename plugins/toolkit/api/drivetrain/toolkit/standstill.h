// Time in which this process itself stood still: suspended by Ctrl-Z, in a frozen container, on a paused machine.
// Others did nothing wrong in it, so no time-out of theirs may run on.
#pragma once

#include <algorithm>
#include <chrono>

namespace drivetrain {

// For a loop that comes here many times a second.
class Standstill {
 public:
  // How long it did not come here, where that was more than a second; else nothing.
  std::chrono::steady_clock::duration seen() {
    const auto before = last_;
    last_ = std::chrono::steady_clock::now();
    return last_ - before > std::chrono::seconds(1) ? last_ - before : std::chrono::steady_clock::duration::zero();
  }
  // After work of the loop's own that may take long.
  void here_again() { last_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Runs `pause`, which takes milliseconds where the process runs. Returns how long it took where that was more than a
// second, else nothing: by so much a deadline for others moves on.
template <class Pause>
std::chrono::steady_clock::duration standstill_in(const Pause& pause) {
  const auto start = std::chrono::steady_clock::now();
  pause();
  const auto took = std::chrono::steady_clock::now() - start;
  return took > std::chrono::seconds(1) ? took : std::chrono::steady_clock::duration::zero();
}

// Waits until `done`, which is asked under `lock`, or until `deadline`, which moves on as above. `changed` is a
// condition variable that is notified when `done` may have become true. Returns whether it is.
template <class Changed, class Lock, class Done>
bool wait_patiently(Changed& changed, Lock& lock, std::chrono::steady_clock::time_point deadline, const Done& done) {
  Standstill still;
  while (!done()) {
    deadline += still.seen();
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    changed.wait_until(lock,
                       std::min(deadline, now + std::chrono::steady_clock::duration(std::chrono::milliseconds(250))));
  }
  return true;
}

}  // namespace drivetrain
