// `launch --dry-run`: every command that would run, and where.
#pragma once

#include <string>

#include "launch/request.h"

namespace drivetrain::program {

// A line for each command, "HOST: COMMAND", as a shell takes it; what is chosen when ranks start stands in <>.
std::string dry_run_text(const LaunchRequest& request);

}  // namespace drivetrain::program
