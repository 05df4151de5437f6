// One start of the ranks of a run on this host, from their start until the last of them has ended: tells the launcher
// what they write and how they end, passes its signals on, and ends those that do not end by themselves.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "launch/late_ranks.h"
#include "launch/launcher_channel.h"
#include "launch/orders.h"
#include "launch/outcome.h"
#include "launch/signal_watch.h"
#include "launch/start_ranks.h"
#include "launch/stop_others.h"

namespace drivetrain::program {

// For a process whose children are all its own.
class Attempt {
 public:
  // All of it outlives this.
  Attempt(const StartOrder& order, const ConfigDocument& config, SignalWatch& signals, LauncherChannel& launcher);
  ~Attempt();  // ends what still runs
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Once. `listener`: for rank 0. The launcher is told where a rank cannot be started; those that run are killed then.
  void start(Descriptor listener);
  // What there is to wait for beside the launcher and signals, and how long at most.
  void add_fds(std::vector<pollfd>& fds) const;
  double wait_s() const;
  // After each wait, and after what was heard by it.
  void turn();
  void take(const Message& message);  // of the launcher
  void on_own_signal(int number);     // that came to this process
  // Before this process is stopped, and when it goes on: the ranks are in groups of their own, and would go on unseen.
  void stand_still(bool stops);
  bool any_running() const;
  void finish();  // once none runs

 private:
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool takes_output() const { return launcher_.is_lost() || (!is_paused_ && launcher_.has_room()); }
  void could_not_start(int code, const std::string& reason);
  void read_pipes();
  void pass_restart_points();
  void on_signal(int number);
  void on_passed_signal(int number);
  void reap(bool wait);
  void on_exit(size_t index, int status, bool killed);
  void note_end(const RankEnd& end);
  bool some_said_error() const;
  bool some_wait_for_others() const;
  void keep_deadlines();
  void kill_all();
  void send_stalls();
  void send_flight_records() const;

  const StartOrder& order_;
  const ConfigDocument& config_;
  SignalWatch& signals_;
  LauncherChannel& launcher_;
  // Later by the time in which the ranks were suspended: nobody is late for that.
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), suspended_ = start_;
  std::vector<RankState> ranks_;
  StartedRanks started_;
  std::vector<RankEnd> ends_;  // of the whole run
  LateRanks late_;
  StopOthers stop_others_;
  bool is_paused_ = false;  // nobody takes what ranks write
  int signal_ = 0;          // the first one passed on
  int expected_ = 0;        // one that the launcher passed on, until it comes by itself or is late
  double expected_until_ = kNever;
  bool came_by_itself_ = false;
  bool reminded_ = false;  // one came after SIGUSR1
  bool insisted_ = false;  // ranks are killed: a second one came, nobody listens any more, or a rank could not start
  double looked_for_stalls_ = 0;
};

}  // namespace drivetrain::program
