// What ranks on other hosts find in their environment beside what their launcher tells them. Later entries win.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

// Of `--env KEY` or `--env KEY=VALUE`. Throws UsageError.
std::vector<std::string> environment_of_option(const std::vector<std::string>& given);

// This process's variables for the libraries of a run, then those of .deepspeed_env (or $DS_ENV_FILE) and
// .drivetrain_env, each in the home folder, then in the current one. Throws UsageError.
std::vector<std::string> environment_taken_along();

}  // namespace drivetrain::program
