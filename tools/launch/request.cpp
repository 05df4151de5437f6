#include "launch/request.h"

#include <cstdlib>
#include <filesystem>

#include <drivetrain/toolkit/text.h>

#include "cli/commands.h"
#include "cli/parse.h"
#include "launch/core_binding.h"
#include "launch/elastic.h"
#include "launch/rank_log.h"

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
  if (plain.empty() && arguments.has("--deepspeed"))
    cli::refuse(arguments.command(),
                "--deepspeed FILE stands below a config, and none is given: drivetrain launch -n 2 CONFIG --deepspeed "
                "FILE; a DeepSpeed file that says all of it is a CONFIG");
  if (plain.empty()) cli::refuse(arguments.command(), "something is missing after \"drivetrain launch\"");
  if (plain.front() != "-" && access(plain.front().c_str(), R_OK) != 0)
    throw UsageError("launch: cannot read the config file " + plain.front());
}

void read_hosts(const Arguments& arguments, LaunchRequest& request) {
  request.hosts = hosts_request(arguments);
  if (request.hosts.hosts.empty()) return;
  request.ranks = ranks_of(request.hosts.hosts);
  if (request.ranks > kMostRanks)
    cli::refuse(arguments.command(), "the hosts have " + std::to_string(request.ranks) + " slots together; a run has " +
                                         std::to_string(kMostRanks) + " ranks at most");
}

void read_setup(const Arguments& arguments, LaunchRequest& request) {
  RankSetup& setup = request.setup;
  setup.log_folder = arguments.text("--enable_each_rank_log");
  if (arguments.has("--enable_each_rank_log") && setup.log_folder.empty())
    cli::refuse(arguments.command(), "--enable_each_rank_log wants the name of a folder, got nothing");
  if (setup.has_logs()) setup.log_begin = log_begin_now();
  setup.bind_cores = arguments.has("--bind_cores_to_rank");
  setup.core_list = arguments.text("--bind_core_list");
  if (arguments.has("--bind_core_list")) parse_core_list(setup.core_list);
  // Both say which thread of OpenMP runs where, and would undo the binding.
  for (const char* name : {"KMP_AFFINITY", "GOMP_CPU_AFFINITY"})
    if (setup.bind_cores && std::getenv(name))
      cli::refuse(arguments.command(), std::string("--bind_cores_to_rank: the variable ") + name +
                                           " is set, which places threads too; unset it");
  request.save_pid = arguments.has("--save_pid");
}

}  // namespace

LaunchRequest launch_request(const Arguments& arguments) {
  LaunchRequest request;
  const Command& command = command_of_ranks(arguments);
  std::vector<Arguments::Given> options = options_of_ranks(arguments, command);
  check_config(arguments, command);
  request.ranks = static_cast<int>(arguments.whole("-n"));
  read_hosts(arguments, request);
  request.only_rank_0 = arguments.has("--plan");
  read_elastic(arguments, request);
  read_setup(arguments, request);
  if (command.name == "train") request.resume = arguments.text("--resume");
  for (const Arguments::Given& given : options)
    if (given.name == "--deepspeed" && !std::filesystem::is_regular_file(given.value))
      cli::refuse(arguments.command(), "--deepspeed " + given.value +
                                           " is no file, and every rank reads it by itself; write it into one first");
  for (const Arguments::Given& given : options)
    if (given.name == "--deepspeed" || given.name == "--plugin-path") request.other_files.push_back(given.value);
  std::vector<std::string> plain = arguments.plain();
  if (!plain.empty()) {
    request.config = read_config_once(plain.front() == "-" ? "/dev/stdin" : plain.front());
    if (request.hosts.over_ssh) move_to_common_number(request.config);
    plain.front() = request.config.path;
    request.config_path = plain.front();
  }
  request.command = {std::filesystem::read_symlink("/proc/self/exe")};  // this very program
  for (const std::string& word : cli::split(command.name, ' ')) request.command.push_back(word);
  for (const std::string& word : Arguments(command, std::move(plain), std::move(options)).as_words({"--resume"}))
    request.command.push_back(word);
  return request;
}

}  // namespace drivetrain::program
