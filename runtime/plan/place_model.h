// The model's chain on the meta device, cut into pieces for the stages of the pipeline. Main thread.
#pragma once

#include <vector>

#include "plan/prepared_run.h"

namespace drivetrain {

// The units of a stage, chunk after chunk.
struct StageUnits {
  UnitList units;
  std::vector<ChunkUnits> chunks;
};
// Of a chain that is cut into pieces (RunPlan::placement).
StageUnits units_of(const RunPlan& plan, int64_t stage, const std::vector<UnitPtr>& chain);

// The whole model on the meta device, decorated by the strategies. Needs the mesh; no rank waits for another.
std::vector<UnitPtr> build_chain(PreparedRun& run);
// Cuts it into the schedule's pieces and keeps those of this rank's stage. Error(config) where it has fewer units than
// pieces.
void place_chain(PreparedRun& run, const std::vector<UnitPtr>& chain);

}  // namespace drivetrain
