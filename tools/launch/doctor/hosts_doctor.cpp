#include "launch/doctor/hosts_doctor.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "base/printable.h"
#include "cli/parse.h"
#include "launch/doctor/judge.h"
#include "launch/environment.h"
#include "launch/open_files.h"
#include "launch/same_host.h"

namespace drivetrain::program {
namespace {

// What is read as `launch` reads it is refused in the name of this command.
template <class Read>
auto as_doctor(const Read& read) {
  try {
    return read();
  } catch (const UsageError& e) {
    const std::string text = e.what(), other = "launch: ";
    throw UsageError(text.starts_with(other) ? "doctor: " + text.substr(other.size()) : text);
  }
}

std::vector<Host> chosen_hosts(const cli::Arguments& arguments) {
  const int nodes = arguments.has("--num_nodes") ? static_cast<int>(arguments.whole("--num_nodes")) : 0;
  const bool filtered = arguments.has("--include") || arguments.has("--exclude");
  if (filtered && nodes > 0)
    cli::refuse(arguments.command(), std::string(arguments.has("--include") ? "--include" : "--exclude") +
                                         " says which hosts are looked at; leave out --num_nodes");
  const std::vector<Host> all = read_hostfile(arguments.text("--hostfile"));
  if (arguments.has("--include")) return include_hosts(all, arguments.text("--include"));
  if (arguments.has("--exclude")) return exclude_hosts(all, arguments.text("--exclude"));
  return first_hosts(all, nodes, 0);
}

SurveyRequest survey_request(const cli::Arguments& arguments) {
  SurveyRequest request;
  request.hosts.hosts = chosen_hosts(arguments), request.hosts.hostfile = arguments.text("--hostfile");
  request.hosts.over_ssh = true;
  refuse_same_hosts(request.hosts);
  request.hosts.ssh_port = arguments.has("--ssh_port") ? static_cast<int>(arguments.whole("--ssh_port")) : 0;
  request.hosts.launcher_args = shell_words(arguments.text("--launcher_args"), "--launcher_args");
  request.hosts.environment = environment_taken_along();
  request.command = {std::filesystem::read_symlink("/proc/self/exe"), "doctor", "--json"};
  for (const std::string& word :
       arguments.as_words({"--hostfile", "--include", "--exclude", "--num_nodes", "--ssh_port", "--launcher_args",
                           "--json", "--ranks", "--communicator"}))
    request.command.push_back(word);
  return request;
}

RanksRequest ranks_request(const cli::Arguments& arguments, const std::string& program) {
  RanksRequest request{arguments.whole("--ranks", 0), program, {}};
  for (const cli::Arguments::Given& given : arguments.given())
    for (const char* option : {"--launcher_args", "--ssh_port", "--communicator", "--plugin-path"})
      if (given.name == option) request.options.insert(request.options.end(), {given.name, given.value});
  return request;
}

}  // namespace

int hosts_doctor(const cli::Arguments& arguments) try {
  const SurveyRequest request = as_doctor([&] { return survey_request(arguments); });
  const std::string too_few = make_room_for_open_files(0, request.hosts.hosts.size());
  if (!too_few.empty()) throw std::system_error(EMFILE, std::generic_category(), too_few);
  signal(SIGPIPE, SIG_IGN);
  const SurveyReport survey = Survey(request).run();
  Findings findings;
  judge_hosts(findings, survey);
  judge_differences(findings, survey);
  judge_clocks(findings, survey);
  judge_pairs(findings, survey);
  Value collectives;
  if (arguments.has("--ranks"))
    collectives = judge_ranks(findings, survey, ranks_request(arguments, request.command.front()));
  if (!arguments.has("--json")) {
    std::cout << printable(findings.text());
  } else {
    Value value = survey_value(survey, findings);
    if (arguments.has("--ranks")) value.set("collectives", std::move(collectives));
    std::cout << printable_json(value.to_json(2)) + "\n";
  }
  return findings.exit_code();
} catch (const std::system_error& e) {
  std::cerr << std::string("drivetrain: error: doctor: ") + e.what() + "\n";
  return 8;
}

}  // namespace drivetrain::program
