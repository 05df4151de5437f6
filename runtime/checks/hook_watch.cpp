#include "checks/hook_watch.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "checks/call_seats.h"

namespace drivetrain {
namespace {

using Clock = std::chrono::steady_clock;

// What a seat showed when it was looked at first with this call in it.
struct Seen {
  uint64_t calls = 0;
  Clock::time_point since{};
  bool busy = false;
};

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
  std::array<Seen, kCallSeats> seen{};
  const std::chrono::duration<double> pause(std::clamp(limit_s_ / 4, 0.05, 5.0));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return over_; })) {
    const Clock::time_point now = Clock::now();
    for (size_t i = 0; i < kCallSeats; ++i) {
      CallSeat& seat = call_seats()[i];
      const uint64_t calls = seat.calls;
      const bool busy = seat.innermost != nullptr;
      if (!busy || !seen[i].busy || seen[i].calls != calls) {
        seen[i] = {calls, now, busy};
      } else if (std::chrono::duration<double>(now - seen[i].since).count() >= limit_s_) {
        const std::optional<SeenCall> call = see_call(seat);
        if (call && !call->moves_files) return report_(call->text);
        seen[i].since = now;
      }
    }
  }
}

}  // namespace drivetrain
