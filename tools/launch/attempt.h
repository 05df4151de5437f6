// One start of all ranks of a run, from their start until the last of them has ended: passes their output and signals,
// ends those that do not end by themselves, and reports who failed first.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/late_ranks.h"
#include "launch/outcome.h"
#include "launch/request.h"
#include "launch/signal_watch.h"
#include "launch/start_ranks.h"
#include "launch/stop_others.h"

namespace drivetrain::program {

struct AttemptEnd {
  int code = 0;                    // of the contract
  int signal = 0;                  // that was passed on to all ranks; 0: none
  std::optional<RankEnd> failure;  // the first one; none: nothing failed
  std::string cause;               // of it: "rank 1: killed by signal 9 (...)"
  std::string error;               // that the rank said: "drivetrain: error: ..."
  std::optional<RestartPoint> restart_point;
  bool has_new_checkpoint = false;      // saved since the start
  std::vector<std::string> lost_hosts;  // of a run of several hosts, or that could not take part
  bool not_started = false;             // no rank was: what the failure is stands in `cause`
  bool run_is_done = false;             // rank 0 said so before a rank failed in its end
};

// For a process whose children are all its own.
class Attempt {
 public:
  // All of it outlives this.
  Attempt(const LaunchRequest& request, const RanksToStart& wanted, SignalWatch& signals);
  ~Attempt();  // ends what still runs
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Once. A rank that cannot be started is a failure with exit 8.
  AttemptEnd run();

 private:
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void say(const std::string& text) const;
  bool any_running() const;
  bool takes_output() const;
  void wait_for_something();
  void on_signal(int number);
  void on_own_signal(int number);
  void on_passed_signal(int number);
  void reap(bool wait);
  void on_exit(size_t index, int status, bool killed);
  void note_end(const RankEnd& end);
  void hear_of_others();
  bool is_alone() const { return ranks_.size() == 1 && !wanted_.others; }
  bool some_said_error() const;
  bool some_wait_for_others() const;
  void keep_deadlines();
  AttemptEnd could_not_start(const std::string& reason) const;
  void pass_the_rest();
  void send_stalls();
  void send_flight_records() const;

  const LaunchRequest& request_;
  const RanksToStart& wanted_;
  SignalWatch& signals_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  StartedRanks started_;
  std::vector<RankState>& ranks_ = started_.ranks;
  std::vector<RankEnd> ends_;
  LateRanks late_;
  StopOthers stop_others_;
  int signal_ = 0;    // the first one passed on
  int expected_ = 0;  // one that others passed on, until it comes by itself or is late
  double expected_until_ = kNever;
  bool came_by_itself_ = false;
  bool reminded_ = false;  // one came after SIGUSR1
  bool insisted_ = false;  // ranks are killed: a second one came, nobody listens any more, or a rank could not start
  double looked_for_stalls_ = 0;
};

}  // namespace drivetrain::program
