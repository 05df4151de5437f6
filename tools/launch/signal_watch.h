// The signals that the launcher waits for, as a file descriptor: SIGCHLD, and those that end a run.
#pragma once

#include <csignal>

#include "launch/rank_process.h"

namespace drivetrain::program {

// Blocks SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD and SIGHUP (unless it is ignored: nohup keeps its meaning) as long
// as it lives. One per process, main thread.
class SignalWatch {
 public:
  SignalWatch();  // throws std::system_error
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return descriptor_.get(); }                   // readable once a signal has come
  const sigset_t* mask_before() const { return &mask_before_; }  // what child processes start with
  // SIGINT, SIGTERM, SIGUSR1, SIGUSR2 or SIGHUP that has come and was not returned yet; 0: none.
  int next();
  // The same, waiting up to `seconds` for one that ends a run, as SIGUSR2 does not.
  int next_within(double seconds);

 private:
  sigset_t mask_before_ = {};
  Descriptor descriptor_;
};

}  // namespace drivetrain::program
