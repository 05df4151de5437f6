#include "train/hook_watch.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "plugin_calls/call_seats.h"
#include "process/own_threads.h"
#include "train/moved_bytes.h"

namespace drivetrain {
namespace {

using Clock = std::chrono::steady_clock;

// What a seat showed when it was looked at first with this call in it.
struct Seen {
  uint64_t calls = 0;
  Clock::time_point since{};
  bool busy = false;
  uint64_t bytes = 0;  // moved until then
};

// Less than any file that a plugin takes long for, and more than what threads that idle read beside it.
constexpr uint64_t kSomeBytes = uint64_t{64} << 10;

// A save or a dataset's index takes as long as there are bytes; one that moves none hangs like any other call.
bool moves_on(const CallSeat& seat, uint64_t& bytes) {
  const MovedBytes moved = bytes_moved_by(seat.thread);
  if (moved.known && !moved.waits_disk && moved.bytes < bytes + kSomeBytes) return false;
  bytes = moved.bytes;
  return true;
}

}  // namespace

HookWatch::HookWatch(double limit_s, std::function<void(const std::string&)> report)
    : limit_s_(limit_s), report_(std::move(report)) {
  if (limit_s_ > 0) thread_ = std::thread([this] { watch(); });
}

HookWatch::~HookWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void HookWatch::watch() {
  const OwnThread own;  // to look is to read, and would pass for work of whoever is looked at
  std::array<Seen, kCallSeats> seen{};
  const std::chrono::duration<double> pause(std::clamp(limit_s_ / 4, 0.05, 5.0));
  Clock::time_point looked = Clock::now();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return over_; })) {
    const Clock::time_point now = Clock::now();
    // Time in which the whole process stood still, or this thread did not come to look, is nobody's.
    const Clock::duration late = now - looked - std::chrono::duration_cast<Clock::duration>(pause);
    looked = now;
    if (late > pause)
      for (Seen& one : seen) one.since += late;
    for (size_t i = 0; i < kCallSeats; ++i) {
      CallSeat& seat = call_seats()[i];
      const uint64_t calls = seat.calls;
      const bool busy = seat.innermost != nullptr;
      if (!busy || !seen[i].busy || seen[i].calls != calls) {
        seen[i] = {calls, now, busy, 0};
      } else if (const std::optional<SeenCall> call = see_call(seat)) {
        if (call->moves_files && moves_on(seat, seen[i].bytes)) seen[i].since = now;
        if (std::chrono::duration<double>(now - seen[i].since).count() >= limit_s_) return report_(call->text);
      }
    }
  }
}

}  // namespace drivetrain
