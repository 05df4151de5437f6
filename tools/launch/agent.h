// What starts and watches the ranks of a host for a launcher: passes their output on, tells how they end, and ends them
// when it is told to or when nobody is there any more (the channel was closed, or the network does not answer). Its
// words and orders are message.h. The launcher of a run on its own host has the agent in its process, behind a
// socket pair; `drivetrain agent` is the one that it runs on other hosts, over ssh or by a scheduler's starter.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "launch/attempt.h"
#include "launch/examination.h"
#include "launch/meeting.h"

namespace drivetrain::program {

class Agent {
 public:
  explicit Agent(LauncherChannel channel);  // greets the launcher
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // What there is to wait for, and how long at most.
  std::vector<pollfd> fds() const;
  double wait_s() const;
  // After each wait: does what it is told, and passes on what ranks write and how they end.
  void turn();
  // Once it has been told which ranks to start. `signals` outlives it.
  bool is_to_start() const { return order_ && !attempt_ && !done_; }
  void start(SignalWatch& signals);
  void on_own_signal(int number) { attempt_->on_own_signal(number); }  // while ranks run
  void stand_still(bool stops) {
    if (attempt_) attempt_->stand_still(stops);
  }
  bool is_done() const { return done_; }  // every process of the ranks is gone

  // Told to end by this signal before there were ranks; 0: not so.
  int end_signal() const { return end_signal_; }
  // For a process of its own, once it is done: until the launcher has what was sent, and needs it no longer.
  void leave();
  bool is_lost() const { return channel_.is_lost(); }
  std::chrono::steady_clock::time_point last_order() const { return last_order_; }

 private:
  void take(const Message& order);
  void prepare(const PrepareOrder& order);

  LauncherChannel channel_;
  Examination examination_{channel_};
  Meeting meeting_;
  ConfigDocument config_;
  std::optional<StartOrder> order_;
  std::unique_ptr<Attempt> attempt_;  // while ranks run
  bool done_ = false;
  int end_signal_ = 0;
  std::chrono::steady_clock::time_point last_order_ = std::chrono::steady_clock::now();
};

// `drivetrain agent`. For a process without other threads and children. Returns its exit code.
int agent();

}  // namespace drivetrain::program
