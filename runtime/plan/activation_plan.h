// What forward passes leave for their backward on the fullest rank, by what the blocks say of themselves, the schedule
// of micro-batches in flight and the recompute policy of regions. A figure before anything is allocated. Thread: main.
#pragma once

#include "plan/planned_run.h"

namespace drivetrain {

// Of a run whose model is placed and whose recompute policy has chosen. No bytes where the blocks do not say.
ActivationPlan plan_activations(const PlannedRun& run);

}  // namespace drivetrain
