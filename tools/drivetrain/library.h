// Opens LibTorch, libdrivetrain.so and the library of a command by full path, so that neither a library path nor the
// current folder decides which one is trained with. Main thread; nothing is ever closed.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "cli/arguments.h"

namespace drivetrain::program {

// The system gives no memory to begin with; the exit code is 4.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The release of the torch package at `folder` ("2.11.0", "2.11.0+cpu"), read from its files without running any of
// them;
// "" if none of them says.
std::string torch_release(const std::string& folder);

// LibTorch and libdrivetrain.so, for a process that forks before it runs commands. Throws as run_in_library does.
void load_library();

// Opens <folder of the program>/../lib/libdrivetrain.so and drivetrain/commands/X.so there, X being the command's first
// word, and calls drivetrain_run of the second with the command line as it was read. LibTorch is the one of
// DRIVETRAIN_TORCH, else the one of the build. Throws UsageError if a library is missing or of another release.
int run_in_library(const cli::Arguments& arguments);

// Calls drivetrain_run of drivetrain/commands/NAME.so, which needs neither LibTorch nor libdrivetrain.so. Throws as
// run_in_library does, and what the command throws.
int run_in_plain_library(const std::string& name, const cli::Arguments& arguments);

// Calls drivetrain_command of a library of somebody else (outside.h), opened after libdrivetrain.so. Throws as
// run_in_library does.
int run_outside_library(const std::string& name, const std::string& path, const std::vector<std::string>& words);

}  // namespace drivetrain::program
