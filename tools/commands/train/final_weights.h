// The folder of final weights of a run, whole, whatever way its state is sharded over ranks.
//
// Thread: main. Errors: Error(internal) where the parts are not the whole; Error(io) for full disks.
#pragma once

#include "run/run.h"

namespace drivetrain {

// Whether the run writes final weights, and those of its last step are not in its folder.
bool lacks_final(const Run& run);

// Everything that would stop write_final, told before the training: parts that are not the whole, a name that is taken
// (Error(config)), a limit of file sizes (Error(io)). After build_run; moves nothing.
void check_final(const Run& run);

// Collective: rank 0 writes <output_dir>/final, the weights after `step`; the others take part in the gathers. Those of
// an earlier end of the same run are kept as final-step-N. Where somebody else took the name meanwhile, they go to
// final-2, ... with a warning.
// `config`: the run's, with every default. `alone`: the other ranks are lost; rank 0 writes if it holds everything
// itself, and warns if it does not.
void write_final(const Run& run, const Value& config, int64_t step, bool alone = false);

}  // namespace drivetrain
