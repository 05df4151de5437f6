// `launch --launcher slurm --submit FILE`: a batch script that does what the launch would do, to be read and edited.
#pragma once

#include <string>

#include "cli/arguments.h"

namespace drivetrain::program {

// Hosts and ranks are those of --num_nodes and -n. `program`: this one; `folder`: where the run is started.
std::string batch_script(const cli::Arguments& arguments, const std::string& program, const std::string& folder);

// Writes it, never over another file, and gives it to sbatch. Returns what that says. Throws HostError.
std::string submit(const std::string& script, const std::string& file);

}  // namespace drivetrain::program
