// One NCCL communicator and its stream: calls are enqueued here, watched, and stopped.
//
// A call waits on the communicator's stream for what the caller's stream holds so far (an event), runs there, and ends
// with an event, the Mark, that Work::wait makes a stream wait for. The host blocks nowhere but where NCCL does: when a
// pair of ranks talks for the first time. Under graph capture this is a fork and a join; nothing is queried then.
//
// Ownership: a group and its Works hold it. It ends by ncclCommDestroy, or ncclCommAbort after an abort (closings.h).
// Thread: `enqueue` one at a time, `look` and `oldest` from the watchdog, `stop` from any. Errors: Error(communication)
// naming group and call, and c10::AcceleratorError of CUDA; each one aborts the run, since the ranks no longer stand
// together.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "board.h"
#include "closings.h"
#include "nccl_errors.h"
#include "recorded_calls.h"

namespace drivetrain::nccl {

using toolkit::Call;
using toolkit::CallKind;
using toolkit::Counts;
using Clock = std::chrono::steady_clock;

// What CUDA says is c10::AcceleratorError, which the runtime translates by its one table: a kernel's illegal address is
// found here as often as elsewhere, and is no failure of the communicator.
void check_cuda(cudaError_t status, const std::string& where, const char* what);
std::string words_of(const std::exception& e);  // without LibTorch's trace
// cudaEventQuery. "Not ready" is no error and is not left to be found by whoever asks for the last one.
cudaError_t query(cudaEvent_t event);

// Makes `device` the calling thread's. LibTorch has done so on the threads that compute; others keep it, since setting
// the one that they had before, GPU 0, would begin a context there.
void use_device(int device);

// Events are used again: a step makes hundreds.
class EventPool {
 public:
  ~EventPool();
  cudaEvent_t take();
  void give(cudaEvent_t event);

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

// An enqueued call: its end, and its start, which comes when all that it waits for is computed.
struct Mark {
  Mark(std::shared_ptr<EventPool> from, const Call& what, Counts how_many)
      : pool(std::move(from)), event(pool->take()), start(pool->take()), call(what), counts(std::move(how_many)) {}
  ~Mark() { pool->give(event), pool->give(start); }
  Mark(const Mark&) = delete;

  const std::shared_ptr<EventPool> pool;
  const cudaEvent_t event, start;  // `start` is not recorded in a capture
  const Call call;
  const Counts counts;                // where the call has some
  std::atomic<bool> recorded{false};  // until then the host is inside NCCL
  // The watchdog's: since when the call waits for its peers.
  Clock::time_point begun = Clock::now();
  bool started = false;
  std::vector<at::Tensor> held;  // of a Work that nobody waited for: until the call is finished. Under Comm's lock
};
using MarkPtr = std::shared_ptr<Mark>;

class Comm {
 public:
  // Called by all ranks of the group. Blocks until NCCL has joined them.
  Comm(std::shared_ptr<Board> board, at::Device device, std::vector<int64_t> ranks, std::string label,
       std::shared_ptr<Closings> closings);
  ~Comm();

  const std::string& label() const { return label_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  int64_t me() const { return me_; }
  at::Device device() const { return device_; }
  Board& board() const { return *board_; }

  // `body` gets the communicator and the stream to enqueue on, and returns the first result that is no success.
  using Body = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  MarkPtr enqueue(const Call& call, const Body& body, Counts counts = {});
  // Makes the current stream wait for `mark`.
  // Keeps what an unfinished call reads and writes until the watchdog finds that it is finished.
  void hold(const MarkPtr& mark, std::vector<at::Tensor> tensors);
  void join(const Mark& mark) const;
  bool capturing() const;
  // Aborts the run for what the device of this rank says, which its later calls throw.
  void raise_own(cudaError_t status, const Call& call);

  // --- the watchdog's side ---
  struct Oldest {
    Call call;
    Counts counts;
    double age_s;
    bool in_replay = false;  // of a recorded step
    int64_t replayed = 0;    // collectives that replays have begun so far
  };
  // The oldest call that is not finished; those that are, are forgotten. Its age counts neither the wait for its
  // predecessors nor for what the caller's stream still computes: with recorded steps that is most of a step. A call of
  // a replay is older than any that the host has enqueued behind the replay.
  std::optional<Oldest> oldest();
  bool raise_async_error();  // aborts the run for what NCCL found in the background; false: nothing
  CommStatus status();
  // Ends what runs and what waits, from outside; the communicator is of no use afterwards.
  void stop() noexcept;

 private:
  double age_s(Mark& mark, Clock::time_point last_look);
  void join_group(const std::string& id);
  void forget(const MarkPtr& mark);
  void destroy();
  std::string where(const Call& call) const { return call.where(label_); }
  int index() const { return device_.is_cuda() ? device_.index() : 0; }

  const std::shared_ptr<Board> board_;
  const at::Device device_;
  const std::vector<int64_t> ranks_;
  const std::string label_;
  const int64_t me_;
  const Board::Counters counters_;
  const std::shared_ptr<Closings> closings_;
  const std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;  // what the caller's stream held when a call began
  std::shared_ptr<RecordedCalls> recorded_;

  std::timed_mutex use_;  // held while a thread is inside NCCL
  std::atomic<ncclComm_t> comm_{nullptr};

  std::mutex marks_mutex_;
  std::deque<MarkPtr> marks_;  // not known to be finished, oldest first
  Clock::time_point last_end_ = Clock::now(), last_look_ = last_end_;
};
using CommPtr = std::shared_ptr<Comm>;

}  // namespace drivetrain::nccl
