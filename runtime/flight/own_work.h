// How long a rank itself works in a step, by part of the step: the time of its main thread outside of the
// communicator's calls. Ranks that wait for each other have equal step times; only this tells who is slow.
//
// Evaluations and the moment in which the ranks agree on a step do not count: there the host waits for what a device
// computes. So on a device it is the host's part of the work. Thread: the main thread's; calls of other threads are not
// told to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace drivetrain {

enum class WorkPart : uint8_t { data, forward, backward, reduce, stages, optimizer, checkpoint, between };
inline constexpr size_t kWorkParts = 8;

using WorkSeconds = std::array<double, kWorkParts>;

inline double total(const WorkSeconds& seconds) {
  double sum = 0;
  for (const double s : seconds) sum += s;
  return sum;
}

class OwnWork {
 public:
  // From `now_ns` on the rank is in this part.
  void enter(WorkPart part, int64_t now_ns) {
    add(now_ns);
    part_ = part;
  }
  // A call of the communicator, which may lie in another one.
  void call_begins(int64_t now_ns) {
    add(now_ns);
    ++calls_;
  }
  void call_ends(int64_t now_ns) {
    if (calls_ > 0 && --calls_ == 0) since_ns_ = now_ns;
  }
  // Discards the time since the last call.
  void skip(int64_t now_ns) {
    if (calls_ == 0) since_ns_ = now_ns;
  }
  // Since the last time.
  WorkSeconds take(int64_t now_ns) {
    add(now_ns);
    const WorkSeconds taken = seconds_;
    seconds_ = {};
    return taken;
  }

 private:
  void add(int64_t now_ns) {
    if (calls_ == 0 && since_ns_ != 0)
      seconds_[static_cast<size_t>(part_)] += static_cast<double>(now_ns - since_ns_) * 1e-9;
    since_ns_ = now_ns;
  }

  WorkPart part_ = WorkPart::between;
  int calls_ = 0;
  int64_t since_ns_ = 0;  // 0: not begun
  WorkSeconds seconds_ = {};
};

}  // namespace drivetrain
