#include "requests.h"

#include "process.h"

namespace drivetrain::mpi {

MPI_Request* Requests::add(int peer) {
  list_.push_back({MPI_REQUEST_NULL, peer});
  return &list_.back().request;
}

bool Requests::done() {
  for (; next_ < list_.size(); ++next_) {
    int arrived = 0;
    check_mpi(MPI_Test(&list_[next_].request, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived == 0) return false;
  }
  return true;
}

std::vector<int64_t> Requests::pending() {
  std::vector<int64_t> peers;
  for (size_t i = next_; i < list_.size(); ++i) {
    int arrived = 0;
    check_mpi(MPI_Test(&list_[i].request, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived == 0 && list_[i].peer >= 0) peers.push_back(list_[i].peer);
  }
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

}  // namespace drivetrain::mpi
