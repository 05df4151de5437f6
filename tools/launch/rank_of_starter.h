// `mpirun -n N drivetrain launch CONFIG`: mpirun has started the ranks already, and each launch becomes one of them.
#pragma once

#include "launch/request.h"

namespace drivetrain::program {

// Does not return, unless the command cannot be run: the exit code.
int become_rank_of_starter(const LaunchRequest& request);

}  // namespace drivetrain::program
