// `drivetrain launch`: starts the ranks of one host, passes their output and signals, and outlives them all. For a run
// of several hosts hosts/hosts_run.h starts an agent on each, which does the same there for the ranks of its host.
//
// Every rank gets RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT, DRIVETRAIN_RUN_TOKEN, the secret
// of this run, and DRIVETRAIN_MASTER_LISTENS; rank 0 also DRIVETRAIN_LISTEN_FD, a listening socket on that port, and
// DRIVETRAIN_NEWS_FD, a pipe that brings a line for each rank that failed. Rank 0 inherits stdout, and stderr if that
// is a terminal; other ranks' lines are prefixed. After the first failure the others may notice by themselves, then get
// SIGTERM, then SIGKILL. A rank that a signal stopped, that does nothing while others are done, or that is not done
// long after the first end or the signal and reads or writes no files, is ended and named as the cause. A config that
// can be read only once is read here. The first SIGINT, SIGTERM, SIGUSR1 or SIGHUP is passed on once (SIGHUP as
// SIGTERM); a second SIGINT or SIGTERM kills, after SIGUSR1 a third.
//
// With restarts (LaunchRequest::max_restarts) a run that failed is started again, with a port and a secret of its own,
// once every process of the attempt before is gone. Rank 0 then also gets DRIVETRAIN_RESTART_POINTS_FD, a pipe that
// takes what restart_point.h describes, and where the run that this launch began has no checkpoint yet all ranks get
// DRIVETRAIN_BEGUN_FOLDER, its folder, in which it may begin again.
#pragma once

#include "launch/request.h"

namespace drivetrain::program {

// Returns the exit code of the contract: that of the failure that came first; where restarts are used up, that of the
// first failure since the newest checkpoint. Main thread of a process that has no
// other thread and no other children: it becomes the reaper of what ranks leave behind and ends it. 8 if ranks cannot
// be started; those that were are ended.
int launch(const LaunchRequest& request);

}  // namespace drivetrain::program
