// What `drivetrain launch` makes of batch systems and MPI starters: of its options, and of the job that it stands in.
#pragma once

#include <string>

#include "cli/arguments.h"
#include "launch/hosts_request.h"

namespace drivetrain::program {

// What --launcher says, in small letters: DeepSpeed's examples write MPICH.
std::string launcher_named(const cli::Arguments& arguments);

// Fills what is theirs of `request`, its hosts, too, where a job gives them. `own_start`: other hosts' ranks are
// started by somebody else. Throws UsageError.
void read_schedulers(const cli::Arguments& arguments, bool own_start, HostsRequest& request);

}  // namespace drivetrain::program
