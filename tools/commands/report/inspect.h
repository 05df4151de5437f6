// `drivetrain inspect [KIND[/NAME]|FILE.so] [--json|--schema] [--plugin-path DIR]...`: what plugins there are,
// everything about one, and the long form of a refusal. Needs no config. Main thread.
#pragma once

#include <string>

#include "cli/arguments.h"
#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

// Prints to standard output and returns the exit code. Throws Error(config) for a kind that does not exist and
// Error(plugin) for a plugin that is not there or is refused.
DRIVETRAIN_INTERNAL int inspect_command(const cli::Arguments& arguments);

// The texts and values behind it.
std::string inspect_table(const Registry& registry, const std::string& kind);  // kind "": all
std::string inspect_entry(const Registry& registry, const Found& found);       // opens the library
std::string inspect_file_text(const PluginFile& file);
Value inspect_table_json(const Registry& registry, const std::string& kind);  // opens the libraries, for the options
Value inspect_entry_json(const Registry& registry, const Found& found);
Value inspect_file_json(const PluginFile& file);

// The options of a table as `inspect --json` has them: a list of {name, type, help, default, minimum, ...}.
Value options_of_table(const OptionTable& table);

}  // namespace drivetrain
