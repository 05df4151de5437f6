// The config of a timed run: a file or the compiled-in default, with the command line's shape written over it.
#pragma once

#include <drivetrain/options.h>

#include "bench/bench.h"
#include "internal.h"

namespace drivetrain {

// Evaluation and final weights are off; `train_steps` is the caller's. Problems with `--set` go to `problems`. `path`
// becomes what messages call the file. Sizes are options of the model and types are precisions: the installed plugins
// are asked how they call them.
DRIVETRAIN_INTERNAL Value bench_step_config(const BenchArguments& arguments, std::string& path, Problems& problems);

// The compiled-in files of configs/bench/.
DRIVETRAIN_INTERNAL const char* default_step_config();  // gpt2_124m_b4_t64.json
DRIVETRAIN_INTERNAL const char* startup_config();       // startup.json

}  // namespace drivetrain
