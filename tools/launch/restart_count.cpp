#include "launch/restart_count.h"

#include <algorithm>
#include <cmath>
#include <csignal>

namespace drivetrain::program {

bool may_pass(const RankEnd& failure, bool run_had_begun) {
  if (failure.killed && failure.fault.empty()) {
    const int signal = failure.code - 128;
    return signal != SIGTERM && signal != SIGINT && signal != SIGHUP && signal != SIGQUIT;
  }
  switch (failure.code) {
    case 1:  // a bug of ours may need an unlucky moment
    case 5:
      return true;
    case 4:
    case 8:
      return run_had_begun;
    default:
      return false;
  }
}

void RestartCount::failed(const Failure& failure, bool new_checkpoint) {
  if (new_checkpoint) begin_anew(), all_failures_ = 0;
  failures_of_slot_ = failures_ > 0 && failure.slot == last_.slot ? failures_of_slot_ + 1 : 1;
  if (all_failures_ == 0) first_ = failure;
  ++failures_, ++all_failures_;
  last_ = failure;
}

double RestartCount::pause_s() const {
  return std::min(longest_pause_s_, std::ldexp(first_pause_s_, std::max(0, failures_ - 1)));
}

}  // namespace drivetrain::program
