// What every command that trains does before its ranks meet:
// from a config to chosen plugins, and what belongs to the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/train_run.h"

namespace drivetrain {

// Finds out the rank of this process, opens its log, and connects it to the store of the run; from then on the other
// ranks learn if it fails or dies.
// Sets signals of writes, and environment, terminal, log and store of the request.
// Before its config is read: that may fail on one rank alone.
void join_ranks(TrainRequest& request);

// Fills a request whose config and config_path are set: places, settings, plugins. After join_ranks.
// The registry is returned and must outlive the request's use.
// Throws Error with all problems of the file; rank 0 shows its notes.
std::unique_ptr<Registry> choose_for(TrainRequest& request, const std::vector<std::string>& plugin_paths,
                                     Problems& problems);

// As many as the rank will have: plugins plan the memory that each thread takes. Starts none.
void plan_with_threads(const RunSettings& settings, const RankEnvironment& env);

// A reader that went away and a full quota show as write errors, not as a silent death.
void ignore_write_signals();

// The allocator, the wait for rank 0, the device and the threads of this process. Once per process, before any tensor.
void start_process(TrainRequest& request);

}  // namespace drivetrain
