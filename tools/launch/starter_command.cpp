#include "launch/starter_command.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/rank_variables.h"
#include "cli/commands.h"
#include "cli/usage_error.h"
#include "launch/command_output.h"

namespace drivetrain::program {
namespace {

struct StarterKind {
  const char* name;
  std::vector<std::string> programs;  // in order of preference
  const char* says;  // in what `--version` prints: "(Open MPI)", "(OpenRTE)"; "": nobody else has that name
  const char* package;
  const char *rank, *size;  // variables of its tasks
};

const std::vector<StarterKind>& starters() {
  static const std::vector<StarterKind> list{
      {"openmpi",
       {"mpirun.openmpi", "orterun", "mpirun"},
       "Open",
       "openmpi-bin",
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE"},
      {"mpich", {"mpiexec.hydra", "mpirun.mpich", "mpiexec", "mpirun"}, "HYDRA", "mpich", "PMI_RANK", "PMI_SIZE"},
      {"slurm", {"srun"}, "", "slurm-client", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  return list;
}

const StarterKind& kind_of(const std::string& name) {
  for (const StarterKind& one : starters())
    if (name == one.name) return one;
  throw std::logic_error("launch: no starter " + name);
}

bool same_everywhere(const std::vector<Host>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const Host& host) { return host.slots.size() == hosts.front().slots.size(); });
}

// "a:2,b:2"
std::string hosts_with_slots(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    if (host.name.find(':') != std::string::npos)
      throw UsageError("launch: the host " + host.name +
                       ": mpirun takes no IPv6 addresses in a list of hosts; give a name that stands for it");
    text += (text.empty() ? "" : ",") + host.name + ":" + std::to_string(host.slots.size());
  }
  return text;
}

std::string names_of(const std::vector<Host>& hosts, bool for_each_slot) {
  std::string text;
  for (const Host& host : hosts)
    for (size_t i = 0; i < (for_each_slot ? host.slots.size() : 1); ++i) text += (text.empty() ? "" : ",") + host.name;
  return text;
}

bool has_word(const std::vector<std::string>& words, const std::string& word) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& one) { return one == word || one.starts_with(word + "="); });
}

using StarterWords = std::vector<std::string>;

// MPICH's own default hands every variable on.
StarterWords mpich_options(const HostsRequest& request, int tasks) {
  StarterWords words;
  if (!request.hosts.empty()) words = {"-hosts", hosts_with_slots(request.hosts)};
  words.insert(words.end(), {"-n", std::to_string(tasks)});
  return words;
}

// A rank has threads, which --bind-to core, Open MPI's default for two ranks, would put on one core.
StarterWords openmpi_options(const HostsRequest& request, int tasks) {
  StarterWords words;
  if (!request.hosts.empty()) words = {"--host", hosts_with_slots(request.hosts)};
  words.insert(words.end(), {"-n", std::to_string(tasks)});
  if (!has_word(request.launcher_args, "--bind-to") && !has_word(request.launcher_args, "-bind-to"))
    words.insert(words.end(), {"--bind-to", "none"});
  words.insert(words.end(), {"-x", kTaskVariable, "-x", RankStart::kToken});
  return words;
}

StarterWords slurm_options(const HostsRequest& request, int tasks) {
  const std::vector<Host>& hosts = request.hosts;
  StarterWords words{"--ntasks=" + std::to_string(tasks), "--input=none"};
  if (tasks < ranks_of(hosts)) {
    words.insert(words.end(), {"--nodes=1", "--nodelist=" + hosts.front().name});
  } else if (same_everywhere(hosts)) {
    words.insert(words.end(), {"--nodes=" + std::to_string(hosts.size()),
                               "--ntasks-per-node=" + std::to_string(hosts.front().slots.size()),
                               "--nodelist=" + names_of(hosts, false), "--distribution=block"});
  } else {  // a name for each task
    words.insert(words.end(), {"--nodes=" + std::to_string(hosts.size()), "--nodelist=" + names_of(hosts, true),
                               "--distribution=arbitrary"});
  }
  // This is a task of the job itself (`srun --pty bash`), which holds what the new ones need.
  if (const char* step = std::getenv("SLURM_STEP_ID"); step && *step) words.push_back("--overlap");
  if (!request.comment.empty()) words.push_back("--comment=" + request.comment);
  if (!request.account.empty()) words.push_back("--account=" + request.account);
  return words;
}

}  // namespace

bool is_starter(const std::string& name) {
  return std::any_of(starters().begin(), starters().end(), [&](const StarterKind& one) { return name == one.name; });
}

std::string starter_program(const std::string& name) {
  const StarterKind& wanted = kind_of(name);
  StarterWords others;
  for (const std::string& program : wanted.programs) {
    if (first_in_path({program}).empty()) continue;
    if (*wanted.says == 0 || output_of({program, "--version"}).text.find(wanted.says) != std::string::npos)
      return program;
    others.push_back(program);
  }
  throw UsageError("launch: --launcher " + name + ": there is no " + join(wanted.programs, " or ") + " in PATH" +
                   (others.empty() ? "" : " that is its own (" + join(others, " and ") + " is of another MPI)") +
                   "; install it (Debian: " + wanted.package + "), or reach the hosts by --launcher ssh");
}

StarterWords starter_command(const HostsRequest& request, int tasks, const StarterWords& started) {
  const StarterWords options = request.starter == "mpich"     ? mpich_options(request, tasks)
                               : request.starter == "openmpi" ? openmpi_options(request, tasks)
                                                              : slurm_options(request, tasks);
  StarterWords words{request.starter_program};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), request.launcher_args.begin(), request.launcher_args.end());
  words.insert(words.end(), started.begin(), started.end());
  return words;
}

TaskNumber task_number(const std::string& name) {
  const StarterKind& by = kind_of(name);
  const char* const rank = std::getenv(by.rank);
  const char* const size = std::getenv(by.size);
  const auto r = cli::read_whole(rank ? rank : ""), s = cli::read_whole(size ? size : "");
  if (!r || !s || *r < 0 || *r >= *s || *s > 1 << 20)
    throw std::runtime_error(std::string("wanted a rank and a number of ranks in ") + by.rank + " and " + by.size +
                             ", got " + (rank ? "\"" + shown(rank) + "\"" : "nothing") + " and " +
                             (size ? "\"" + shown(size) + "\"" : "nothing") + ": was this started by " +
                             by.programs.front() + "?");
  return {static_cast<int>(*r), static_cast<int>(*s)};
}

}  // namespace drivetrain::program
