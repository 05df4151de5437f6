// What a batch system has given to the process that asks: the hosts of a SLURM job or of a PBS host file, and how many
// ranks each has room for. All throw UsageError.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/host_list.h"

namespace drivetrain::program {

// The value of an environment variable, or null.
using Variables = std::function<const char*(const char* name)>;
// Of this process.
const char* variable_of_process(const char* name);

struct Allocation {
  std::string name;         // "SLURM job 17", "PBS job 12.server"
  bool is_slurm = false;    // srun starts tasks in it; else hosts are reached by ssh or mpirun
  std::vector<Host> hosts;  // a slot for each task, or GPU where the job counts no tasks
  // The tasks were asked for; else they are GPUs, or one for each host, and `most` says how many would have room.
  bool counts_tasks = false;
  std::vector<int> most = {};  // tasks of each host
  int gpus = -1;               // of each host; -1: the job says nothing of GPUs
};

// None: this is no job. `expand`: the hosts that "n[1-3]" stands for.
std::optional<Allocation> allocation(const Variables& variables,
                                     const std::function<std::vector<std::string>(const std::string&)>& expand);
// By `scontrol show hostnames`.
std::vector<std::string> expanded_hosts(const std::string& list);

// "2(x3),1" is 2, 2, 2, 1.
std::vector<int> parse_tasks_per_node(const std::string& text);
// A line for each slot.
std::vector<Host> parse_pbs_hosts(const std::string& text, const std::string& path);

// The first `ranks` of each host of an allocation; 0: what the job says. Refuses more than it has room for.
std::vector<Host> hosts_of(const Allocation& allocation, int ranks_per_host);
// "SLURM job 17 has 2 tasks on each of 2 hosts: srun starts 4 ranks"
std::string allocation_line(const Allocation& allocation, const std::vector<Host>& hosts, const std::string& starter);

// "mpirun" or "srun", if that has started several processes of this program, of which this is one; else "".
std::string started_by(const Variables& variables);

}  // namespace drivetrain::program
