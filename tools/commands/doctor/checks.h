// What `drivetrain doctor` looks at, part by part. Each adds what it found; none of them throws for what is wrong with
// the machine or a plugin. Main thread.
#pragma once

#include <string>
#include <vector>

#include "findings/findings.h"
#include "findings/limits.h"
#include "plan/prepared_run.h"
#include "plugin/registry.h"

namespace drivetrain {

// Processors, memory, open files, time, and the disk that `output_dir` is on. `ranks`: of this host, 0 if unknown.
DRIVETRAIN_INTERNAL void look_at_machine(Findings& findings, const std::string& output_dir, int64_t ranks);

// This program, LibTorch, the GPUs and the libraries that come with LibTorch for them. `device`: "cuda" if a run wants
// one. Opens the GPUs, if there are any.
DRIVETRAIN_INTERNAL void look_at_libraries(Findings& findings, const std::string& device);

// Where plugins are looked for, what is there, and whether each may be used and opens.
DRIVETRAIN_INTERNAL void look_at_plugins(Findings& findings, const SearchPath& search, const Registry& registry);

// One file: what it offers, every field of its fingerprint, the digests of the headers, what it links, whether it
// opens, and what to build again.
DRIVETRAIN_INTERNAL void look_at_plugin_file(Findings& findings, const std::string& path, const SearchPath& search);

// What a planned run needs of memory and disk, against what this machine has.
DRIVETRAIN_INTERNAL void look_at_needs(Findings& findings, const PreparedRun& run);

// Starts `ranks` ranks of this program, which compare the values of every collective. `communicator`: "" for the
// device's own.
DRIVETRAIN_INTERNAL void look_at_ranks(Findings& findings, int64_t ranks, const std::string& device,
                                       const std::string& communicator, const std::vector<std::string>& plugin_paths);

}  // namespace drivetrain
