// What a run does after its last step. Main thread.
#pragma once

#include "train/training.h"

namespace drivetrain {

// Compares the ranks' copies, reports times and memory, ends the monitors' record and writes the final weights. Each
// part is tried whatever became of those before it, so that one that fails loses no weights; without its peers a rank
// does what needs none. Throws what failed first, also behind the last step. Collective.
void end_run(const TrainRequest& request, Run& run, const Beginning& beginning, const Training& training,
             RunFlight& flight, const TrainOutcome& outcome);

}  // namespace drivetrain
