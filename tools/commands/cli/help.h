// What the table says, for people: usage lines, help and the manual page. `others` are commands of somebody else. Pure
// functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace drivetrain::cli {

std::string choice_text(const std::vector<std::string>& choices);  // "step, collectives or context"

std::string usage_line(const Command& command);  // "usage: drivetrain train CONFIG [--set KEY=VALUE]..."
std::string program_help(std::span<const Command> others = {});  // `drivetrain --help`
std::string command_help(
    const Command& command);  // `drivetrain train --help`; of a command with verbs the list of them

std::string environment_text();
std::string exit_codes_text();
std::string manual_page(const std::string& release, std::span<const Command> others = {});

}  // namespace drivetrain::cli
