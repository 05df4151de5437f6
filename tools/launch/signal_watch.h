// The signals that the launcher waits for, as a file descriptor: SIGCHLD, and those that end a run.
#pragma once

#include <csignal>
#include <functional>

#include "launch/rank_process.h"

namespace drivetrain::program {

// Blocks SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, and SIGHUP and SIGTSTP (unless they are ignored: nohup keeps its
// meaning) as long as it lives. SIGTSTP (Ctrl-Z) stops this process once it is taken, as it would have by itself, until
// somebody continues it. One per process, main thread.
class SignalWatch {
 public:
  SignalWatch();  // throws std::system_error
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return descriptor_.get(); }                   // readable once a signal has come
  const sigset_t* mask_before() const { return &mask_before_; }  // what child processes start with
  // Called around such a stop: with true before, with false after it. Empty: nobody cares.
  void around_stops(std::function<void(bool stops)> call) { around_stops_ = std::move(call); }
  // SIGINT, SIGTERM, SIGUSR1, SIGUSR2 or SIGHUP that has come and was not returned yet; 0: none.
  int next();
  // The same, waiting up to `seconds` for one that ends a run, as SIGUSR2 does not.
  int next_within(double seconds);

 private:
  sigset_t mask_before_ = {};
  void stand_still() const;

  Descriptor descriptor_;
  std::function<void(bool stops)> around_stops_;
};

}  // namespace drivetrain::program
