// How often a run is started again and how far it may shrink, as the options say it.
#pragma once

#include "cli/arguments.h"
#include "launch/request.h"

namespace drivetrain::program {

constexpr int kMostRanks = 4096;

// --max-restarts; with --elastic_training alone as many as DeepSpeed's agents make.
int restarts_of(const cli::Arguments& arguments);

// --max-restarts, --elastic and --elastic_training, once ranks and hosts are known. Throws UsageError.
void read_elastic(const cli::Arguments& arguments, LaunchRequest& request);

}  // namespace drivetrain::program
