// Calls that were recorded with a step. A replay makes them without the host, so no event of theirs can be asked for:
// the device itself notes, in memory of the host, when it comes to each of them and when it is through. Two tiny
// kernels per call, on the stream of the call.
//
// Thread: `begin` and `end` from the one that enqueues, the rest from the watchdog's. Errors: as check_cuda.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "board.h"
#include "device_note.h"

namespace drivetrain::nccl {

class RecordedCalls {
 public:
  explicit RecordedCalls(cudaStream_t stream);  // on which it makes both notes once: what is recorded ran before
  // The device is through with all graphs.
  ~RecordedCalls();
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  // Around a call while it is recorded.
  void begin(const toolkit::Call& call, const toolkit::Counts& counts, cudaStream_t stream);
  void end(cudaStream_t stream);

  // The call that the device is in, if it is one of these.
  struct Open {
    toolkit::Call call;
    toolkit::Counts counts;
    int64_t collectives = 0;  // that replays have begun so far, this one among them if it is one
    double age_s = 0;         // since then, from the look before the first one that saw it
  };
  std::optional<Open> open();
  int64_t collectives() const;  // that replays have begun so far

 private:
  using Clock = std::chrono::steady_clock;
  struct Recorded {
    toolkit::Call call;
    toolkit::Counts counts;
  };
  DeviceNote* note_ = nullptr;
  std::mutex mutex_;
  std::deque<Recorded> calls_;
  uint64_t seen_ = 0;  // how many had begun at the last look
  Clock::time_point since_{}, looked_ = Clock::now();
};

}  // namespace drivetrain::nccl
