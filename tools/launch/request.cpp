#include "launch/request.h"

#include <filesystem>

#include <drivetrain/toolkit/text.h>

#include "cli/commands.h"
#include "cli/parse.h"

namespace drivetrain::program {
namespace {

using cli::Arguments;
using cli::Command;
using cli::find_command;
using cli::find_option;

// The command of every rank: `train`, or the benchmark that --bench names.
const Command& command_of_ranks(const Arguments& arguments) {
  return *find_command(arguments.has("--bench") ? "bench " + arguments.text("--bench") : "train");
}

// With which option of `launch` another one may stand: "--bench step" or "--plan".
std::string partners(const std::string& name) {
  std::vector<std::string> list;
  for (const Command& command : cli::kCommands)
    if (const cli::Option* option = command.under_launch ? find_option(command, name) : nullptr;
        option && !option->alone)
      list.push_back("--bench " + std::string(verb(command)));
  const cli::Option* const of_train = find_option(*find_command("train"), name);
  if (of_train && !of_train->needs.empty()) list.emplace_back(of_train->needs);
  return join(list, " or ");
}

// What the ranks are given of the line. Refuses what only another command of ranks takes.
std::vector<Arguments::Given> options_of_ranks(const Arguments& arguments, const Command& command) {
  std::vector<Arguments::Given> list;
  for (const Arguments::Given& given : arguments.given()) {
    if (find_option(*find_command("launch"), given.name)) continue;
    const cli::Option* const option = find_option(command, given.name);
    const bool fits = option && !option->alone && (option->needs != "--plan" || arguments.has("--plan"));
    if (!fits) {
      const std::string with = partners(given.name);
      cli::refuse(arguments.command(),
                  given.name + (with.empty() ? " is no option of `drivetrain " + std::string(command.name) + "`"
                                             : " goes with " + with));
    }
    list.push_back(given);
  }
  return list;
}

// Said once here instead of once per rank.
void check_config(const Arguments& arguments, const Command& command) {
  const std::vector<std::string>& plain = arguments.plain();
  if (command.most == 0 && !plain.empty())
    throw UsageError("launch: --bench " + std::string(verb(command)) + " takes no config, got \"" + plain.front() +
                     "\"");
  if (command.most == 0) return;
  if (plain.empty()) cli::refuse(arguments.command(), "something is missing after \"drivetrain launch\"");
  if (access(plain.front().c_str(), R_OK) != 0)
    throw UsageError("launch: cannot read the config file " + plain.front());
}

}  // namespace

LaunchRequest launch_request(const Arguments& arguments) {
  LaunchRequest request;
  const Command& command = command_of_ranks(arguments);
  std::vector<Arguments::Given> options = options_of_ranks(arguments, command);
  check_config(arguments, command);
  request.ranks = static_cast<int>(arguments.whole("-n"));
  request.only_rank_0 = arguments.has("--plan");
  std::vector<std::string> plain = arguments.plain();
  if (!plain.empty()) {
    request.config = read_config_once(plain.front());
    plain.front() = request.config.path;
  }
  request.command = {std::filesystem::read_symlink("/proc/self/exe")};  // this very program
  for (const std::string& word : cli::split(command.name, ' ')) request.command.push_back(word);
  for (const std::string& word : Arguments(command, std::move(plain), std::move(options)).as_words())
    request.command.push_back(word);
  return request;
}

}  // namespace drivetrain::program
