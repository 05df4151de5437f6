// The program `drivetrain`. Thin on purpose: it reads the command line and, only if there is something to run, opens
// LibTorch and libdrivetrain.so. `launch` stays here, so that the process that watches the ranks is small.
#include <fcntl.h>
#include <unistd.h>

#include <iostream>

#include "config/printable.h"
#include "drivetrain/commands.h"
#include "drivetrain/library.h"
#include "drivetrain/stack_trace.h"
#include "launch/launch.h"
#include "launch/request.h"

namespace drivetrain::program {
namespace {

// A file that is opened later must not get the number of a stream that was closed: it would receive what is printed.
// Writing to a closed stdout fails, as it should, since its place is open for reading only.
void fill_standard_descriptors() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(number, F_GETFD) < 0) static_cast<void>(open("/dev/null", number == STDERR_FILENO ? O_WRONLY : O_RDONLY));
}

int printed() {
  std::cout.flush();
  if (std::cout) return 0;
  std::cerr << "drivetrain: error: cannot write to the standard output: it is full or closed\n";
  return 8;
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError("what should it do? See `drivetrain --help`");
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") return std::cout << program_help(), printed();
  if (words[0] == "--version") {
    std::cout << "drivetrain " DRIVETRAIN_RELEASE " (LibTorch " DRIVETRAIN_TORCH_RELEASE ")\n";
    return printed();
  }
  const CommandRule& rule = find_command(words[0]);
  const Arguments arguments = read_arguments(rule, {words.begin() + 1, words.end()});
  if (arguments.help) return std::cout << command_help(rule), printed();
  if (rule.name == "launch") return launch(launch_request(arguments));
  std::vector<std::string> to_run = arguments.words();
  to_run.insert(to_run.begin(), rule.name);
  return run_in_library(to_run);
}

}  // namespace
}  // namespace drivetrain::program

// What is no UsageError is our own bug and is left to the terminate handler, which still sees the stack.
int main(int argc, char** argv) {
  drivetrain::program::fill_standard_descriptors();
  drivetrain::program::install_stack_traces();
  try {
    return drivetrain::program::run({argv + 1, argv + argc});
  } catch (const drivetrain::program::OutOfMemory& e) {
    std::cerr << "drivetrain: error: " + drivetrain::printable(e.what()) + "\n";
    return 4;
  } catch (const drivetrain::program::UsageError& e) {
    std::cout.flush();
    std::cerr << "drivetrain: error: " + drivetrain::printable(e.what()) + "\n";
    return 2;
  }
}
