// A thread per communicator that looks after its groups: calls that do not end within timeout_s, errors that NCCL met
// in the background, peers that left, aborts of other ranks. Whatever it finds becomes the cause of all ranks, and
// every group of this rank is stopped, so that a host or a stream that waits goes on; the next call throws the cause.
//
// It asks for events under a capture mode of its own, so a capture on another thread is not disturbed.
// Ownership: shares Board and Comms. Thread: `add`, `wake` from any. The destructor waits for the thread to leave its
// current look.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm.h"

namespace drivetrain::nccl {

class Watchdog {
 public:
  Watchdog(std::shared_ptr<Board> board, int device);
  ~Watchdog();

  void add(const CommPtr& comm);
  void wake();  // look now

 private:
  void watch();
  bool look();  // false: the run was aborted
  void check_comm(Comm& comm);
  CommStatus status_of(const std::string& label);
  std::vector<CommPtr> comms();
  void stop_all();

  using Clock = std::chrono::steady_clock;
  const std::shared_ptr<Board> board_;
  const int device_;
  Clock::time_point awake_since_{};  // its thread's
  std::mutex mutex_;
  std::condition_variable bell_;
  bool closing_ = false;
  std::vector<std::weak_ptr<Comm>> comms_;
  std::thread thread_;
};

}  // namespace drivetrain::nccl
