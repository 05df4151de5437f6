// Where the thin program enters the library: one command, one exit code.
#include <cerrno>
#include <cstring>
#include <iostream>

#include "app/commands.h"
#include "base/printable.h"
#include "checks/situations.h"
#include "report/inspect.h"

namespace drivetrain {
namespace {

int run_command(const cli::Arguments& arguments) {
  const std::string_view command = arguments.command().name;
  if (command == "train") return train_command(arguments);
  if (command.starts_with("config ")) return config_command(arguments);
  if (command == "checkpoint convert") return convert_command(arguments);
  if (command.starts_with("checkpoint ")) return checkpoint_command(arguments);
  if (command.starts_with("data ")) return data_command(arguments);
  if (command == "generate") return generate_command(arguments);
  if (command == "evaluate") return evaluate_command(arguments);
  if (command.starts_with("bench ") && bench_command) return bench_command(arguments);
  if (command == "inspect") return inspect_command(arguments);
  if (command == "doctor") return doctor_command(arguments);
  if (command == "flight") return flight_command(arguments);
  if (command == "plan") return plan_command(arguments);
  throw fail(ErrorCode::internal, "the program knows command ", command, ", the library does not");
}

int report(int code, const std::string& message) {
  std::cout.flush();
  // one write: ranks may share a terminal
  std::cerr << concat("drivetrain: error: ", printable(message), "\n") << std::flush;
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
}  // namespace drivetrain

// The command line as the program read it; program and library are of one release. What is neither an Error nor a
// situation of the user's (checks/situations.h) is our own bug and is left to the program's terminate handler, which
// prints the stack and exits with 1.
extern "C" DRIVETRAIN_API int drivetrain_run(const drivetrain::cli::Arguments& arguments) {
  using namespace drivetrain;
  try {
    return check_output(run_command(arguments), arguments.command().name);
  } catch (const Error& e) {
    return report(static_cast<int>(e.code()), e.what());
  } catch (const std::exception& e) {
    const auto situation = situation_of(e);
    if (!situation) throw;
    return report(static_cast<int>(situation->code), situation->text());
  }
}
