// Reads a command line by the table. Options may stand anywhere, as `--a v` or `--a=v`; in their names '-' and '_' are
// the same; after `--` every word is plain. Pure functions; they throw UsageError.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/usage_error.h"

namespace drivetrain::cli {

// The command that `words` begin with; if it has verbs, the verb's, which may stand between options. The error for an
// unknown command names the nearest one; the error for one of a later version says that it is not in this one.
const Command& command_of(const std::vector<std::string>& words);

// Whether `--help` or `-h` stands before any `--`.
bool asks_for_help(const std::vector<std::string>& words);

// `words` with the command and its verb. Checks everything that the table says.
Arguments parse(const std::vector<std::string>& words);

// Throws UsageError: `train: MESSAGE` and the usage line.
[[noreturn]] void refuse(const Command& command, const std::string& message);

}  // namespace drivetrain::cli
