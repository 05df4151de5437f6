// Runs the program of a command of somebody else, and waits for it. Main thread.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

// Its exit code; what a signal did is said on stderr: 8 where it wrote to a pipe that nobody reads, else 128 + the
// signal. SIGTERM, SIGHUP and SIGUSR1 are passed on; Ctrl-C reaches it by itself. Throws UsageError if it cannot be
// started.
int run_outside_program(const std::string& name, const std::string& path, const std::vector<std::string>& words);

}  // namespace drivetrain::program
