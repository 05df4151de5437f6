// The `config` commands that have a file of their own, and what they share. Main thread.
#pragma once

#include "cli/arguments.h"

namespace drivetrain {

int explain_command(const cli::Arguments& arguments);
int schema_command(const cli::Arguments& arguments);
int diff_command(const cli::Arguments& arguments);

}  // namespace drivetrain
