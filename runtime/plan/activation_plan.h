// What forward passes leave for their backward on the fullest rank, by what the model says of a block, the schedule of
// micro-batches in flight and the recompute policy of regions. A figure before anything is allocated. Thread: main.
#pragma once

#include "plan/planned_run.h"

namespace drivetrain {

// Of a run whose model is placed and whose storage is not there yet: shows the recompute policy a copy of its units.
ActivationPlan plan_activations(const PlannedRun& run);

}  // namespace drivetrain
