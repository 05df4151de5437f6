// The programs that start an agent for each rank of a run: mpirun of Open MPI, mpiexec of MPICH, srun of SLURM.
#pragma once

#include <string>
#include <vector>

#include "launch/hosts_request.h"

namespace drivetrain::program {

// What agents find in their environment. The starter's own channel carries the values; its command line has the names
// at most.
constexpr const char* kTaskVariable = "DRIVETRAIN_LAUNCHER";

bool is_starter(const std::string& name);  // "openmpi", "mpich", "slurm"
// The program of this starter in PATH. Throws UsageError if there is none, or if it is that of another MPI.
std::string starter_program(const std::string& name);

// The whole line: `words` are started once for each of `tasks` ranks, on the hosts of the request in their order.
std::vector<std::string> starter_command(const HostsRequest& request, int tasks, const std::vector<std::string>& words);

// The rank and number of ranks that this starter has given to the process that asks. Throws std::runtime_error.
struct TaskNumber {
  int rank = 0, size = 0;
};
TaskNumber task_number(const std::string& starter);

}  // namespace drivetrain::program
