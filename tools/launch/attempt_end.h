// How one start of all ranks of a run has ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/outcome.h"
#include "launch/restart_point.h"

namespace drivetrain::program {

struct AttemptEnd {
  int code = 0;                    // of the contract
  int signal = 0;                  // that was passed on to all ranks; 0: none
  std::optional<RankEnd> failure;  // the first one; none: nothing failed
  std::string cause;               // of it: "rank 1: killed by signal 9 (...)"
  std::string error;               // that the rank said: "drivetrain: error: ..."
  std::optional<RestartPoint> restart_point;
  bool has_new_checkpoint = false;      // saved since the start
  std::vector<std::string> lost_hosts;  // or that could not take part
  bool not_started = false;             // no rank was: what the failure is stands in `cause`
  bool run_is_done = false;             // rank 0 said so before a rank failed in its end
};

}  // namespace drivetrain::program
