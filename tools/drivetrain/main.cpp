// The program `drivetrain`. Thin on purpose: it reads the command line and, only if there is something to run, opens
// LibTorch and libdrivetrain.so. `launch` stays here, so that the process that watches the ranks is small.
#include <iostream>

#include "drivetrain/commands.h"
#include "drivetrain/library.h"
#include "drivetrain/stack_trace.h"
#include "launch/launch.h"
#include "launch/request.h"

namespace drivetrain::program {
namespace {

int run(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError("what should it do? See `drivetrain --help`");
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") return std::cout << program_help(), 0;
  if (words[0] == "--version") {
    std::cout << "drivetrain " DRIVETRAIN_RELEASE " (LibTorch " DRIVETRAIN_TORCH_RELEASE ")\n";
    return 0;
  }
  const CommandRule& rule = find_command(words[0]);
  const Arguments arguments = read_arguments(rule, {words.begin() + 1, words.end()});
  if (arguments.help) return std::cout << command_help(rule), 0;
  if (rule.name == "launch") return launch(launch_request(arguments));
  std::vector<std::string> to_run = arguments.words();
  to_run.insert(to_run.begin(), rule.name);
  return run_in_library(to_run);
}

}  // namespace
}  // namespace drivetrain::program

// What is no UsageError is our own bug and is left to the terminate handler, which still sees the stack.
int main(int argc, char** argv) {
  drivetrain::program::install_stack_traces();
  try {
    return drivetrain::program::run({argv + 1, argv + argc});
  } catch (const drivetrain::program::UsageError& e) {
    std::cout.flush();
    std::cerr << "drivetrain: error: " << e.what() << "\n";
    return 2;
  }
}
