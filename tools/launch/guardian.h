// Ends what ranks leave behind where the launcher or the agent itself is killed: the kernel ends the ranks then, but
// not the processes that they have started.
#pragma once

#include <sys/types.h>

#include <string>

#include "launch/rank_process.h"

namespace drivetrain::program {

// A mark of one start of ranks, which they find in RankStart::kLaunchId, and so does all that they start.
std::string new_launch_id();  // throws std::system_error

// A process that waits until the one that made it is gone or lets it go. Where that is killed, it kills all processes
// of this user that have the mark, also those that left the group of their rank.
class Guardian {
 public:
  // `may_stand_s`: the one that made it may be stopped by a signal for so long, then it is killed; 0: for ever. Throws
  // std::system_error.
  Guardian(const std::string& launch_id, double may_stand_s);
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

 private:
  Descriptor life_;  // closed by the kernel where this process dies
  pid_t pid_ = -1;
};

}  // namespace drivetrain::program
