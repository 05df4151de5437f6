// `drivetrain study`. No LibTorch: what trains and plans are processes of the same program.
#pragma once

#include "cli/arguments.h"

namespace drivetrain::study {

// Returns the exit code; errors are on stderr.
int study_command(const cli::Arguments& arguments);

}  // namespace drivetrain::study
