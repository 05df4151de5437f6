// The watchdog's side of Comm: which calls are finished, what NCCL found in the background, and the end by force.
#include <algorithm>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/seconds_since.h>

#include "comm.h"

namespace drivetrain::nccl {
// A start is seen at the first look after it, so it may lie as far back as the look before.
double Comm::age_s(Mark& mark, Clock::time_point last_look) {
  if (mark.recorded && !mark.started) {
    const cudaError_t status = query(mark.start);
    if (status == cudaErrorNotReady) return 0;
    mark.started = true;
    mark.begun = std::max(mark.begun, last_look);
  }
  return seconds_since(std::max(mark.begun, last_end_));
}

// What the device of this rank says of a call is rarely about the call: any kernel before it may have failed.
void Comm::raise_own(cudaError_t status, const Call& call) {
  try {
    check_cuda(status, where(call), "cudaEventQuery");
  } catch (const std::exception& failure) {
    board_->raise_own(concat("rank ", board_->rank(), ": ", words_of(failure)), std::current_exception());
  }
}

std::optional<Comm::Oldest> Comm::oldest() {
  const std::lock_guard lock(marks_mutex_);
  const Clock::time_point last_look = std::exchange(last_look_, Clock::now());
  while (!marks_.empty() && marks_.front()->recorded) {
    const cudaError_t status = query(marks_.front()->event);
    if (status == cudaErrorNotReady) break;
    if (status != cudaSuccess && !board_->aborted()) raise_own(status, marks_.front()->call);
    last_end_ = Clock::now();
    marks_.pop_front();
  }
  *counters_.replayed = recorded_->collectives();
  if (auto open = recorded_->open())
    return Oldest{open->call, std::move(open->counts), open->age_s, true, open->collectives};
  if (marks_.empty()) return std::nullopt;
  return Oldest{marks_.front()->call, marks_.front()->counts, age_s(*marks_.front(), last_look)};
}

CommStatus Comm::status() {
  const auto open = oldest();
  const int64_t reached = *counters_.reached, replayed = *counters_.replayed;
  if (!open) return {reached, 0, "", {}, replayed};
  return {reached, open->call.number, open->call.text(), open->counts, replayed, open->in_replay};
}

bool Comm::raise_async_error() {
  ncclResult_t result = ncclSuccess;
  {
    const std::unique_lock use(use_, std::try_to_lock);
    if (!use || comm_ == nullptr) return false;
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result); asked != ncclSuccess) result = asked;
  }
  if (result == ncclSuccess || result == ncclInProgress) return false;
  const std::string said = concat("group \"", label_, "\": NCCL reports ", nccl_words(result));
  if (const std::exception_ptr of_cuda = cuda_in_nccl(result, said))
    board_->raise_own(concat("rank ", board_->rank(), ", ", said), of_cuda);
  else
    board_->raise(concat("rank ", board_->rank(), ", ", said, ". A peer or a link is gone; NCCL_DEBUG=INFO says more"));
  return true;
}

// A thread that waits inside NCCL for a peer has to leave before the communicator can go. Revoking ends its wait and
// the kernels, and frees nothing.
void Comm::stop() noexcept {
  try {
    use_device(index());
    std::unique_lock use(use_, std::defer_lock);
    if (!use.try_lock_for(std::chrono::milliseconds(200))) {
      if (const ncclComm_t comm = comm_; comm != nullptr) ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
      if (!use.try_lock_for(std::chrono::seconds(10))) return;  // leaked with the thread that hangs in it
    }
    if (const ncclComm_t comm = comm_.exchange(nullptr); comm != nullptr) ncclCommAbort(comm);
  } catch (...) {
    // The cause is raised already; there is nothing more to end.
  }
}

}  // namespace drivetrain::nccl
