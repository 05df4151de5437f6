// NCCL communicators that are being closed, each by a thread of its own.
//
// Closing one may wait for its peers: NCCL documents ncclCommDestroy as a call of all ranks of a node together. Its
// proxies stay while a peer is connected to them, which recorded calls do. Ranks may give up their groups in different
// orders, as the stages of a pipeline do those to the next stage and from it, so none of them is waited for before the
// communicator itself ends. The graphs that recorded calls of it have to be gone by then, too (NCCL 2.26 and later).
//
// Thread: any. Errors: none; what does not close is leaked and named in a warning: the process is about to end.
#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <drivetrain/services.h>

#include "board.h"

namespace drivetrain::nccl {

class Closings {
 public:
  Closings(std::shared_ptr<Board> board, Log& log) : board_(std::move(board)), log_(log) {}

  // `close` closes the communicator of group `label`. Is waited for here if `finish` was called.
  void begin(const std::string& label, std::packaged_task<void()> close) noexcept;
  // Waits for all that have begun.
  void finish() noexcept;

 private:
  struct Closing {
    std::string label;
    std::future<void> done;
  };
  static bool is_done(const Closing& closing);
  void wait_for(std::vector<Closing> open);

  const std::shared_ptr<Board> board_;
  Log& log_;
  std::mutex mutex_;
  bool finished_ = false;
  std::vector<Closing> open_;
};

}  // namespace drivetrain::nccl
