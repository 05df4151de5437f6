// Ranks that do not go on: stopped by a signal, doing nothing while another rank is done, or not done long after it or
// after the signal to end. Whoever stopped one may let it go on, and while others run they have time-outs of their own;
// after that it is ended, with a fault that the report names. A rank that computes may take longer than one that does
// nothing, but only one that reads or writes files may take as long as it does so.
#pragma once

#include <string>
#include <vector>

#include "launch/launcher_channel.h"
#include "launch/orders.h"
#include "launch/rank_state.h"

namespace drivetrain::program {

class LateRanks {
 public:
  // All of it outlives this.
  LateRanks(const StartOrder& order, std::vector<RankState>& ranks, LauncherChannel& launcher)
      : may_take_(order.deadlines), has_several_(order.has_several()), ranks_(ranks), launcher_(launcher) {}

  // Was it stopped, or does it go on, since the last time? Says so.
  void note_stop(size_t rank, double now);
  // Once a rank has ended or all were told to. `done`: a rank has ended. `failed`: look only for those that are
  // stopped, since the others have a deadline already.
  void watch(double now, bool done, bool failed);
  void end_stopped(size_t rank);
  void told_to_end(double now);   // from now on every rank has its time
  void output_waits(double now);  // nobody reads it: ranks may wait for that

 private:
  void watch_work(size_t rank, double now);
  void end(size_t rank, double now, const std::string& fault);

  const Deadlines& may_take_;
  const bool has_several_;  // the run has several ranks
  std::vector<RankState>& ranks_;
  LauncherChannel& launcher_;
  bool done_ = false, told_ = false;
  double since_ = 0;  // the later of both
};

}  // namespace drivetrain::program
