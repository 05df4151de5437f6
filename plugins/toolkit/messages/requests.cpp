#include "requests.h"

namespace drivetrain::toolkit::messages {

bool Requests::done() {
  while (next_ < list_.size() && list_[next_].transfer->done()) ++next_;
  return next_ == list_.size();
}

std::vector<int64_t> Requests::pending() {
  std::vector<int64_t> peers;
  for (size_t i = next_; i < list_.size(); ++i)
    if (!list_[i].transfer->done()) peers.push_back(list_[i].peer);
  return peers;
}

bool Flow::advance() {
  while (!handle_.done()) {
    promise_type& promise = handle_.promise();
    if (promise.waiting != nullptr && !promise.waiting->done()) return false;
    promise.waiting = nullptr;
    ++moved_;
    handle_.resume();
    if (promise.error) std::rethrow_exception(std::exchange(promise.error, nullptr));
  }
  return true;
}

Requests* Flow::waiting() const { return handle_ && !handle_.done() ? handle_.promise().waiting : nullptr; }

}  // namespace drivetrain::toolkit::messages
