// The commands of this version and their help.
#pragma once

#include "drivetrain/command_line.h"

namespace drivetrain::program {

// Throws UsageError for an unknown command and for one that is not in this version.
const CommandRule& find_command(const std::string& name);

std::string program_help();                         // `drivetrain --help`
std::string command_help(const CommandRule& rule);  // `drivetrain train --help`

}  // namespace drivetrain::program
