#include "closings.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/seconds_since.h>

namespace drivetrain::nccl {
namespace {

using Clock = std::chrono::steady_clock;

// Since the last one was closed, or timeout_s where that is less: where a rank is lost, and where none is. Ranks that
// share a GPU take turns there, too, and with many groups that takes longer than the first.
constexpr double kWithoutPeerS = 5, kWithPeersS = 60;

}  // namespace

bool Closings::is_done(const Closing& closing) {
  return closing.done.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void Closings::begin(const std::string& label, std::packaged_task<void()> close) noexcept {
  try {
    std::vector<Closing> begun(1);
    begun[0] = {label, close.get_future()};
    auto* const leaked = new std::packaged_task<void()>(std::move(close));  // where no thread is to be had
    std::thread([leaked] { (*leaked)(), delete leaked; }).detach();
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(open_, is_done);
      if (!finished_) return open_.push_back(std::move(begun[0]));
    }
    wait_for(std::move(begun));
  } catch (const std::exception&) {
    // No thread or no memory to be had.
  }
}

void Closings::finish() noexcept {
  try {
    std::vector<Closing> open;
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
      open = std::exchange(open_, {});
    }
    wait_for(std::move(open));
  } catch (const std::exception&) {
    // No memory for a warning.
  }
}

void Closings::wait_for(std::vector<Closing> open) {
  std::string lost;
  double limit_s = std::min(kWithPeersS, board_->timeout_s());
  for (auto since = Clock::now(); !open.empty() && seconds_since(since) < limit_s;) {
    open.front().done.wait_for(std::chrono::milliseconds(50));
    if (std::erase_if(open, is_done) > 0) since = Clock::now();
    if (open.empty() || !lost.empty() || (lost = board_->lost()).empty()) continue;
    since = Clock::now();
    limit_s = std::min(kWithoutPeerS, limit_s);
  }
  for (const Closing& closing : open)
    log_.warning(concat("communicator/nccl: group \"", closing.label,
                        "\" was left open: NCCL has not closed it within ", limit_s, " s, ",
                        lost.empty() ? "though no rank is lost" : "since the run was aborted: " + lost));
}

}  // namespace drivetrain::nccl
