// The program `drivetrain`. Thin on purpose: it reads the command line and, only if there is something to run, opens
// LibTorch, libdrivetrain.so and the library of the command. `launch` stays here, so that the process that watches the
// ranks is small.
#include <fcntl.h>
#include <unistd.h>

#include <iostream>

#include "base/printable.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/error_line.h"
#include "cli/help.h"
#include "cli/parse.h"
#include "drivetrain/library.h"
#include "drivetrain/outside.h"
#include "drivetrain/stack_trace.h"
#include "kit/conformance.h"
#include "kit/kit_error.h"
#include "kit/new_plugin.h"
#include "launch/agent.h"
#include "launch/copy_install.h"
#include "launch/launch.h"
#include "launch/request.h"
#include "launch/same_host.h"

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
  std::cerr << cli::error_line("cannot write to the standard output: it is full or closed");
  return 8;
}

// Of the first words that are a command; `--help` may stand behind anything.
std::string help_for(const std::vector<std::string>& words, const OutsideCommands& others) {
  if (const cli::Command* const other = others.find(words[0])) return cli::command_help(*other);
  const cli::Command* command = cli::find_command(words[0]);
  if (command && words.size() > 1)
    if (const cli::Command* verb = cli::find_command(words[0] + " " + words[1])) command = verb;
  if (!command) command = &cli::command_of(words);  // which says what is wrong with it
  return cli::command_help(*command);
}

// Of all commands. What is there and not used is said, too.
std::string general_help(const OutsideCommands& others) {
  std::string text = cli::program_help(others.rows());
  for (const std::string& problem : others.problems()) text += printable(problem) + "\n";
  return text;
}

// `help bench step`
std::string help_about(const std::vector<std::string>& topic, const OutsideCommands& others) {
  if (topic.empty()) return general_help(others);
  if (topic.size() > 1) return cli::command_help(cli::command_of(topic));
  return help_for(topic, others);
}

int print(const std::string& text) {
  std::cout << text;
  return printed();
}

// What the program and commands of others say of themselves.
int describe(const cli::Arguments& arguments) {
  const OutsideCommands others(arguments.all("--plugin-path"));
  if (arguments.command().name == "completion")
    return print(arguments.plain().front() == "bash" ? cli::bash_completion(others.rows())
                                                     : cli::zsh_completion(others.rows()));
  if (arguments.has("--man")) return print(cli::manual_page(DRIVETRAIN_RELEASE, others.rows()));
  return print(help_about(arguments.plain(), others));
}

// The word is no command of the program.
int run_outside(const std::vector<std::string>& words) {
  const PathWords rest = take_plugin_paths({words.begin() + 1, words.end()});
  const OutsideCommands others(rest.paths);
  if (!others.has(words[0])) return print(help_for(words, others));  // which says what is wrong with it
  if (cli::asks_for_help(rest.others) && others.find(words[0])) return print(help_for(words, others));
  return others.run(words[0], rest.others);
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError("what should it do? See `drivetrain --help`");
  if (words[0] == "--help" || words[0] == "-h") return print(general_help(OutsideCommands({})));
  if (words[0] == "--version")
    return print("drivetrain " DRIVETRAIN_RELEASE " (LibTorch " DRIVETRAIN_TORCH_RELEASE ")\n");
  if (!cli::find_command(words[0])) return run_outside(words);
  if (cli::asks_for_help(words)) return print(help_for(words, OutsideCommands({})));
  const cli::Arguments arguments = cli::parse(words);
  const std::string_view command = arguments.command().name;
  if (command == "help" || command == "completion") return describe(arguments);
  if (command == "launch") {
    LaunchRequest request = launch_request(arguments);
    refuse_same_hosts(request.hosts);
    const int failed = copy_to_hosts(request);
    return failed != 0 ? failed : launch(request);
  }
  if (command == "agent") return agent();
  if (command == "doctor" && arguments.has("--hostfile")) {
    const int code = run_in_plain_library("hosts_doctor", arguments), not_printed = printed();
    return not_printed != 0 ? not_printed : code;
  }
  if (command == "new-plugin") {
    const int code = kit::new_plugin(arguments);
    return code == 0 ? printed() : code;
  }
  if (command == "study") return run_in_plain_library("study", arguments);
  if (command == "conformance") kit::conformance(arguments);
  return run_in_library(arguments);
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
    std::cerr << drivetrain::cli::error_line(e.what());
    return 4;
  } catch (const drivetrain::kit::KitError& e) {
    std::cout.flush();
    std::cerr << drivetrain::cli::error_line(e.what());
    return e.code();
  } catch (const drivetrain::UsageError& e) {
    std::cout.flush();
    std::cerr << drivetrain::cli::error_line(e.what());
    return 2;
  }
}
