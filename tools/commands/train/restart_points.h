// The other end of what `drivetrain launch` needs to start a failed run again (tools/launch/restart_point.h).
#pragma once

#include "train/train_run.h"

namespace drivetrain {

// Sets begun_folder and, where the launcher gave a pipe, on rank 0,
// on_restart_point (RankStart). The request's settings are read when it is called, so it must stay where it is. Returns
// what tells the launcher that the run has done and written everything.
std::function<void()> connect_launcher(TrainRequest& request);

}  // namespace drivetrain
