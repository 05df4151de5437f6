// `drivetrain plan --table NAME`. Main thread.
#pragma once

#include <string>

#include "cli/arguments.h"
#include "internal.h"

namespace drivetrain {

// Folders beside the program, here as where it is installed.
DRIVETRAIN_INTERNAL std::string data_folder(const char* name);

// Rows of the table, or of "all" with what their constants are worth; text or JSON, to print.
DRIVETRAIN_INTERNAL std::string plan_tables(const std::string& name, const cli::Arguments& arguments);

}  // namespace drivetrain
