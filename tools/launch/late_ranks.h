// Ranks that do not go on: stopped by a signal, or doing nothing while another rank is done. Whoever stopped one may
// let it go on, and while others run they have time-outs of their own; after that it is ended, with a fault that the
// report names. A rank that works may take its time: it may write large files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/rank_state.h"
#include "launch/request.h"

namespace drivetrain::program {

class LateRanks {
 public:
  using Say = std::function<void(const std::string&)>;
  LateRanks(const LaunchRequest& request, std::vector<RankState>& ranks, Say say)
      : request_(request), ranks_(ranks), say_(std::move(say)) {}

  // Was it stopped, or does it go on, since the last time? Says so.
  void note_stop(size_t rank, double now);
  // Once a rank has ended or all were told to. `idle`: ranks that do nothing are looked for, too.
  void watch(double now, bool idle);
  void end_stopped(size_t rank);
  void told_to_end(double now);  // from now on a stopped rank has its time

 private:
  void end_idle(size_t rank, double now, const Activity& activity);

  const LaunchRequest& request_;
  std::vector<RankState>& ranks_;
  const Say say_;
};

}  // namespace drivetrain::program
