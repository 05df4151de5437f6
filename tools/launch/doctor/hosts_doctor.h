// `drivetrain doctor --hostfile FILE`: are these hosts, and the network between them, good for a run?
#pragma once

#include "cli/arguments.h"

namespace drivetrain::program {

// Prints what was found. Returns doctor's exit code: 5 where a host is not reached, else 3 where a problem is a
// plugin's, else 2; 0 without problems. Throws UsageError. For a process without other threads and children.
int hosts_doctor(const cli::Arguments& arguments);

}  // namespace drivetrain::program
