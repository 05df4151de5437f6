#include "shared/run_command.h"

#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>

#include "cli/error_line.h"
#include "plugin_calls/situations.h"

namespace drivetrain {
namespace {

int run_one(const cli::Arguments& arguments, std::initializer_list<LibraryCommand> commands) {
  const std::string_view name = arguments.command().name;
  for (const LibraryCommand& command : commands)
    if (name == command.name || name.starts_with(std::string(command.name) + " ")) return command.run(arguments);
  throw fail(ErrorCode::internal, "the program knows command ", name, ", the library does not");
}

int report(int code, const std::string& message) {
  std::cout.flush();
  // one write: ranks may share a terminal
  std::cerr << cli::error_line(message) << std::flush;
  return code;
}

// What a command prints here is its result; a training run prints through its log and has its folder. The commands of
// checkpoints and doctor have codes that mean nothing without what was printed.
int check_output(int code, std::string_view command) {
  errno = 0;
  std::cout.flush();
  if (std::cout || (code != 0 && !command.starts_with("checkpoint ") && command != "doctor")) return code;
  return report(static_cast<int>(ErrorCode::io), concat(command, ": cannot write to the standard output: ",
                                                        errno != 0 ? strerror(errno) : "it is full or closed",
                                                        ". What was printed is not whole; give it a place with space"));
}

}  // namespace

int run_command(const cli::Arguments& arguments, std::initializer_list<LibraryCommand> commands) {
  try {
    return check_output(run_one(arguments, commands), arguments.command().name);
  } catch (const std::exception& e) {
    if (const auto situation = situation_of(e)) return report(static_cast<int>(situation->code), situation->text());
    if (const auto* error = dynamic_cast<const Error*>(&e)) return report(static_cast<int>(error->code()), e.what());
    throw;
  }
}

}  // namespace drivetrain
