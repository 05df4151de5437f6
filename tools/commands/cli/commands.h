// Looking things up in the table. Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command_table.h"

namespace drivetrain::cli {

// Every command of this version, verbs too, and behind them `others`, of somebody else (drivetrain/outside.h).
std::vector<const Command*> all_commands(std::span<const Command> others);
std::vector<const Command*> without_verbs(std::span<const Command> others);  // those that are the first word

// Null: there is none, not even one of a later version.
const Command* find_command(std::string_view name);

// The commands that `command` is a prefix of: `bench step` of `bench`. Empty for one without verbs.
std::vector<const Command*> verbs_of(const Command& command);
std::string_view verb(const Command& command);  // "step" of "bench step", "" of "train"

// All that may be given to `command`: its own rows; for `launch` those of `train` and of the benchmarks it starts too,
// for a command with verbs those of all verbs. Each name once.
std::vector<Option> options_of(const Command& command);
std::vector<RefusedOptions> refused_of(const Command& command);
const Option* find_option(const Command& command, std::string_view name);  // among its own rows

std::vector<std::string> split(std::string_view text, char separator);  // no empty parts

// A number as the command line takes it; nothing if `text` is not exactly one.
std::optional<int64_t> read_whole(const std::string& text);
std::optional<double> read_real(const std::string& text);

}  // namespace drivetrain::cli
