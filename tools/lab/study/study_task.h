// One run of a study on a host of a cluster: `drivetrain study task FILE`, which SLURM starts. The run's line for the
// ledger goes into the run's folder, on a file system that both hosts see, and the study takes it up there.
#pragma once

#include <optional>
#include <string>

#include "study/cell_run.h"

namespace drivetrain::study {

void write_task(const std::string& path, const CellRun& run);  // throws Error(io)

// Runs it. 0: its line is there, however the run itself ended; 128 + signal: it was told to end, and there is none.
int run_task(const std::string& path);

// What a task has left in the folder of its run; none: nothing yet.
std::optional<CellEnd> task_end(const std::string& folder);

}  // namespace drivetrain::study
