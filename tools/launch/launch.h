// `drivetrain launch`: starts the ranks of a run, passes their output and signals, and outlives them all. Agents
// (agent.h) start and watch the ranks of each host; the one of this host is in the launcher's own process.
//
// What every rank is told stands in runtime/base/rank_variables.h. Rank 0 inherits stdout, and stderr if that
// is a terminal; other ranks' lines are prefixed. After the first failure the others may notice by themselves, then get
// SIGTERM, then SIGKILL. A rank that a signal stopped, that does nothing while others are done, or that is not done
// long after the first end or the signal and reads or writes no files, is ended and named as the cause. A config that
// can be read only once is read here. The first SIGINT, SIGTERM, SIGUSR1 or SIGHUP is passed on once (SIGHUP as
// SIGTERM); a second SIGINT or SIGTERM kills, after SIGUSR1 a third.
//
// With restarts (LaunchRequest::max_restarts) a run that failed is started again, with a port and a secret of its own,
// once every process of the attempt before is gone.
#pragma once

#include "launch/request.h"

namespace drivetrain::program {

// Returns the exit code of the contract: that of the failure that came first; where restarts are used up, that of the
// first failure since the newest checkpoint. Main thread of a process that has no
// other thread and no other children: it becomes the reaper of what ranks leave behind and ends it. 8 if ranks cannot
// be started; those that were are ended.
int launch(const LaunchRequest& request);

}  // namespace drivetrain::program
