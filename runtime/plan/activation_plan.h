// What micro-batches take on a rank of a stage, by what its units say of their visits, the recompute policy of regions
// and the schedule's program. Figures before anything is allocated. Thread: main.
#pragma once

#include "plan/prepared_run.h"

namespace drivetrain {

// Of a stage's units, chunk after chunk, after the policy has chosen among them. Zeros where a block does not say, and
// where nothing is trained.
ActivationPlan plan_activations(const PreparedRun& run, int64_t stage, const UnitList& units,
                                const std::vector<ChunkUnits>& chunks);

}  // namespace drivetrain
