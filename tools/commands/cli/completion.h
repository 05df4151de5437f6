// Scripts for shells, made from the table: they complete commands, options, values that are a fixed set, files and
// folders. They call no program. Pure functions.
#pragma once

#include <string>

namespace drivetrain::cli {

std::string bash_completion();  // for `source <(drivetrain completion bash)`
std::string zsh_completion();   // for a file `_drivetrain` in a folder of fpath, or for sourcing after compinit

}  // namespace drivetrain::cli
