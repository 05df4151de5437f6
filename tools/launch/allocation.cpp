#include "launch/allocation.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

#include "base/printable.h"
#include "cli/commands.h"
#include "cli/usage_error.h"
#include "launch/command_output.h"

namespace drivetrain::program {
namespace {

std::string text_of(const Variables& variables, const char* name) {
  const char* const value = variables(name);
  return value ? value : "";
}

[[noreturn]] void refuse_variable(const char* name, const std::string& value, const std::string& wanted) {
  throw UsageError(std::string("launch: environment variable ") + name + "=" + shown(value) + ": wanted " + wanted);
}

int whole_variable(const Variables& variables, const char* name, int otherwise) {
  const std::string value = text_of(variables, name);
  if (value.empty()) return otherwise;
  const auto number = cli::read_whole(value);
  if (!number || *number < 1 || *number > 1 << 20) refuse_variable(name, value, "a whole number of at least 1");
  return static_cast<int>(*number);
}

std::vector<int> counted_slots(int count) {
  std::vector<int> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

// "4", "a100:4", "a100:2,h100:2"; -1: no number in it.
int gpu_count(const std::string& text) {
  int sum = 0;
  for (const std::string& part : cli::split(text, ',')) {
    const size_t colon = part.rfind(':');
    const auto number = cli::read_whole(colon == std::string::npos ? part : part.substr(colon + 1));
    if (!number || *number < 0 || *number > 1 << 20) return -1;
    sum += static_cast<int>(*number);
  }
  return text.empty() ? -1 : sum;
}

int gpus_of_job(const Variables& variables) {
  for (const char* name : {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"})
    if (const int count = gpu_count(text_of(variables, name)); count >= 0) return count;
  return -1;
}

// SLURM rounds up where tasks do not divide: the last hosts have fewer.
void leave_out_beyond(int tasks, std::vector<int>& per_host) {
  int sum = std::accumulate(per_host.begin(), per_host.end(), 0);
  for (auto one = per_host.rbegin(); one != per_host.rend() && sum > tasks; ++one) {
    const int less = std::min(sum - tasks, *one - 1);
    *one -= less, sum -= less;
  }
}

Allocation slurm_allocation(const Variables& variables,
                            const std::function<std::vector<std::string>(const std::string&)>& expand) {
  Allocation job;
  job.name = "SLURM job " + text_of(variables, "SLURM_JOB_ID");
  job.is_slurm = true;
  const std::string list = text_of(variables, "SLURM_JOB_NODELIST");
  const std::vector<std::string> names = expand(list);
  if (names.empty()) refuse_variable("SLURM_JOB_NODELIST", list, "the names of the job's hosts");
  const std::string per_node = text_of(variables, "SLURM_TASKS_PER_NODE");
  job.most = per_node.empty() ? std::vector<int>(names.size(), 1) : parse_tasks_per_node(per_node);
  if (job.most.size() != names.size())
    refuse_variable("SLURM_TASKS_PER_NODE", per_node,
                    "numbers for " + hosts_text(names.size()) + " (SLURM_JOB_NODELIST=" + shown(list) + ")");
  job.gpus = gpus_of_job(variables);
  const int tasks = whole_variable(variables, "SLURM_NTASKS", 0);
  job.counts_tasks = tasks > 0 || !text_of(variables, "SLURM_NTASKS_PER_NODE").empty();
  if (tasks > 0) leave_out_beyond(tasks, job.most);
  for (size_t i = 0; i < names.size(); ++i)
    job.hosts.push_back({names[i], counted_slots(job.counts_tasks ? job.most[i] : std::max(1, job.gpus))});
  return job;
}

Allocation pbs_allocation(const Variables& variables, const std::string& path) {
  Allocation job;
  const std::string id = text_of(variables, "PBS_JOBID");
  job.name = id.empty() ? "the PBS job" : "PBS job " + id;
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    throw UsageError("launch: cannot read the host file " + path +
                     " that PBS_NODEFILE names; give --hostfile FILE, or unset "
                     "PBS_NODEFILE to start the ranks on this host");
  job.hosts = parse_pbs_hosts(text.str(), path);
  job.counts_tasks = true;
  for (const Host& host : job.hosts) job.most.push_back(static_cast<int>(host.slots.size()));
  return job;
}

bool alike(const std::vector<Host>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const Host& host) { return host.slots.size() == hosts.front().slots.size(); });
}

std::string counted(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

const char* variable_of_process(const char* name) { return std::getenv(name); }

std::optional<Allocation> allocation(const Variables& variables,
                                     const std::function<std::vector<std::string>(const std::string&)>& expand) {
  if (!text_of(variables, "SLURM_JOB_ID").empty() && !text_of(variables, "SLURM_JOB_NODELIST").empty())
    return slurm_allocation(variables, expand);
  if (const std::string path = text_of(variables, "PBS_NODEFILE"); !path.empty())
    return pbs_allocation(variables, path);
  return std::nullopt;
}

std::vector<std::string> expanded_hosts(const std::string& list) {
  const CommandOutput said = output_of({"scontrol", "show", "hostnames", list});
  if (said.code != 0)
    throw UsageError("launch: `scontrol show hostnames " + list + "` ended with exit " + std::to_string(said.code) +
                     (said.text.empty() ? "" : ": " + shown(said.text)) +
                     "; --launcher none starts the ranks of this host alone");
  std::vector<std::string> names;
  std::istringstream lines(said.text);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) names.push_back(line);
  return names;
}

std::vector<int> parse_tasks_per_node(const std::string& text) {
  std::vector<int> list;
  for (const std::string& part : cli::split(text, ',')) {
    const size_t open = part.find("(x");
    const bool repeated = open != std::string::npos && part.back() == ')';
    const auto count = cli::read_whole(part.substr(0, open));
    const auto times = repeated ? cli::read_whole(part.substr(open + 2, part.size() - open - 3)) : 1;
    if (!count || !times || *count < 1 || *times < 1 || *count > 4096 || *times > 4096)
      refuse_variable("SLURM_TASKS_PER_NODE", text, "numbers such as 2(x3),1");
    list.insert(list.end(), static_cast<size_t>(*times), static_cast<int>(*count));
  }
  return list;
}

std::vector<Host> parse_pbs_hosts(const std::string& text, const std::string& path) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (line.empty()) continue;
    if (line.find_first_of(" \t@#=") != std::string::npos || line.front() == '-')
      throw UsageError("launch: " + path + ":" + std::to_string(number) + ": wanted the name of a host, got \"" +
                       shown(line) + "\" (PBS_NODEFILE has a line for each slot)");
    auto host = std::find_if(hosts.begin(), hosts.end(), [&](const Host& one) { return one.name == line; });
    if (host == hosts.end()) host = hosts.insert(hosts.end(), {line, {}});
    host->slots.push_back(static_cast<int>(host->slots.size()));
  }
  if (hosts.empty())
    throw UsageError("launch: " + path +
                     " names no host; PBS_NODEFILE has a line for each slot: give "
                     "--hostfile FILE, or unset it to start the ranks on this host");
  return hosts;
}

std::vector<Host> hosts_of(const Allocation& job, int ranks_per_host) {
  std::vector<Host> hosts = job.hosts;
  if (ranks_per_host > 0)
    for (Host& host : hosts) host.slots = counted_slots(ranks_per_host);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const size_t ranks = hosts[i].slots.size();
    const auto room = static_cast<size_t>(job.most[i]);
    if (ranks > room && (job.counts_tasks || ranks_per_host > 0))
      throw UsageError("launch: -n " + std::to_string(ranks) + ": " + job.name + " has " + counted(room, "task") +
                       " on host " + hosts[i].name + "; ask for more " +
                       (job.is_slurm ? "(sbatch or salloc --ntasks-per-node=" + std::to_string(ranks) + ")"
                                     : "(qsub -l select=...:mpiprocs=" + std::to_string(ranks) + ")") +
                       ", or give a smaller -n");
    if (job.gpus > 0 && ranks > static_cast<size_t>(job.gpus))
      throw UsageError("launch: " + counted(ranks, "rank") + " on host " + hosts[i].name + ", and " + job.name +
                       " has " + counted(static_cast<size_t>(job.gpus), "GPU") +
                       " there: a rank needs its own; give -n " + std::to_string(job.gpus) +
                       ", or ask for more (--gres=gpu:" + std::to_string(ranks) + ")");
  }
  return hosts;
}

std::string allocation_line(const Allocation& job, const std::vector<Host>& hosts, const std::string& starter) {
  const auto ranks = static_cast<size_t>(ranks_of(hosts));
  const std::string what = job.is_slurm ? (job.counts_tasks ? "task" : job.gpus > 0 ? "GPU" : "rank") : "slot";
  std::string text = job.name + " has ";
  if (hosts.size() == 1)
    text += counted(ranks, what) + " on host " + hosts.front().name;
  else if (alike(hosts))
    text += counted(hosts.front().slots.size(), what) + " on each of " + hosts_text(hosts.size());
  else
    text += counted(ranks, what) + " on " + hosts_text(hosts.size());
  return text + ": " + starter + " starts " + counted(ranks, "rank");
}

std::string started_by(const Variables& variables) {
  struct StarterVariables {
    const char *rank, *size, *name;
  };
  for (const StarterVariables& one : {StarterVariables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},
                                      StarterVariables{"PMI_RANK", "PMI_SIZE", "mpirun"},
                                      StarterVariables{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"}}) {
    const auto size = cli::read_whole(text_of(variables, one.size));
    if (!text_of(variables, one.rank).empty() && size && *size > 1) return one.name;
  }
  return "";
}

}  // namespace drivetrain::program
