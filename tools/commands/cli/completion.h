// Scripts for shells, made from the table: they complete commands, options, values that are a fixed set, files and
// folders. They call no program. `others` are commands of somebody else. Pure functions.
#pragma once

#include <span>
#include <string>

#include "cli/command.h"

namespace drivetrain::cli {

std::string bash_completion(std::span<const Command> others = {});  // for `source <(drivetrain completion bash)`
// For a file `_drivetrain` in a folder of fpath, or for sourcing after compinit.
std::string zsh_completion(std::span<const Command> others = {});

}  // namespace drivetrain::cli
