// Which failures of a run are worth another start, and how many of them. Pure.
#pragma once

#include <string>

#include "launch/outcome.h"

namespace drivetrain::program {

// Whether the same run may well not fail again: a rank was killed, crashed, was ended because it did not go on, or lost
// a peer. Memory and files (exits 4 and 8) only where `run_had_begun`: before, it is the start that cannot succeed.
// What is written down wrong (2, 3, 6), a numeric failure (7), which would come again, and a rank that somebody asked
// to end (75, 128 + n as an exit code, SIGTERM) is for the user to look at.
bool may_pass(const RankEnd& failure, bool run_had_begun);

struct Failure {
  std::string cause;  // "rank 1: killed by signal 9 (...)"
  int code = 0;       // of the launch, if it ended now
  int slot = 0;       // where that rank ran
};

// Failures since the newest checkpoint: a restart that got as far as a newer one has begun to count anew.
class RestartCount {
 public:
  // `most`: restarts without a newer checkpoint. Pauses before them double from the first on.
  RestartCount(int most, double first_pause_s, double longest_pause_s)
      : most_(most), first_pause_s_(first_pause_s), longest_pause_s_(longest_pause_s) {}

  // `new_checkpoint`: the run saved one before it failed.
  void failed(const Failure& failure, bool new_checkpoint);
  // The next restart is on other places or fewer ranks, and has all its restarts before it.
  void begin_anew() { failures_ = failures_of_slot_ = 0; }

  bool used_up() const { return failures_ > most_; }
  int number() const { return failures_; }        // of the next restart, from 1 to `most`; 0: after begin_anew
  int done() const { return all_failures_ - 1; }  // restarts since the newest checkpoint
  double pause_s() const;                         // before it
  bool same_slot_again() const { return failures_of_slot_ >= 2; }  // the last failures were of one slot
  const Failure& first() const { return first_; }                  // since the newest checkpoint
  const Failure& last() const { return last_; }

 private:
  const int most_;
  const double first_pause_s_, longest_pause_s_;
  int failures_ = 0, failures_of_slot_ = 0;
  int all_failures_ = 0;  // since the newest checkpoint
  Failure first_, last_;
};

}  // namespace drivetrain::program
