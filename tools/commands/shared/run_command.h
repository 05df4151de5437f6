// Where the program enters a library of commands: lib/drivetrain/commands/X.so has those whose first word is X. It is
// opened when one of them is called, after libdrivetrain.so, whose insides it sees: both are of one build. Main thread.
#pragma once

#include <initializer_list>
#include <string_view>

#include "cli/arguments.h"
#include "internal.h"

namespace drivetrain {

struct LibraryCommand {
  std::string_view name;  // "checkpoint convert"; "checkpoint": every verb of it that no row before this one has
  int (*run)(const cli::Arguments& arguments);
};

// One command, one exit code. What is neither an Error nor a situation of the user's (plugin_calls/situations.h) is
// our own bug and is left to the terminate handler of the program, which prints the stack and exits with 1.
DRIVETRAIN_INTERNAL int run_command(const cli::Arguments& arguments, std::initializer_list<LibraryCommand> commands);

}  // namespace drivetrain

// In a library's one source. The program compares the release before it runs anything.
#define DRIVETRAIN_COMMANDS(...)                                                                   \
  extern "C" DRIVETRAIN_INTERNAL const char* drivetrain_release() { return DRIVETRAIN_RELEASE; }   \
  extern "C" DRIVETRAIN_INTERNAL int drivetrain_run(const drivetrain::cli::Arguments& arguments) { \
    return drivetrain::run_command(arguments, {__VA_ARGS__});                                      \
  }
