// After the first failure of a run: the other ranks may notice it by themselves for a while, then they get SIGTERM,
// then SIGKILL.
#pragma once

#include <vector>

#include "launch/late_ranks.h"
#include "launch/outcome.h"
#include "launch/rank_state.h"

namespace drivetrain::program {

class StopOthers {
 public:
  // All of it outlives this. `ends`: of the ranks that have ended so far.
  StopOthers(const Deadlines& may_take, std::vector<RankState>& ranks, const std::vector<RankEnd>& ends,
             LateRanks& late, LauncherChannel& launcher)
      : may_take_(may_take), ranks_(ranks), ends_(ends), late_(late), launcher_(launcher) {}

  void begin(double now);  // a rank failed; only the first call counts
  bool has_begun() const { return deadline_ != kNever; }
  bool has_sent_sigterm() const { return sent_sigterm_; }
  double deadline() const { return deadline_; }  // when `act` has something to do next
  // `signal`: the one that was passed on to all ranks; 0: none.
  void act(double now, int signal);

 private:
  void send_sigterm(int signal);
  void end(size_t index, int signal);
  bool all_lost_a_peer(int signal) const;

  const Deadlines& may_take_;
  std::vector<RankState>& ranks_;
  const std::vector<RankEnd>& ends_;
  LateRanks& late_;
  LauncherChannel& launcher_;
  bool sent_sigterm_ = false;
  double deadline_ = kNever;
};

// Signal `number` to each that runs.
void signal_ranks(const std::vector<RankState>& ranks, int number);

}  // namespace drivetrain::program
