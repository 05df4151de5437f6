// What ranks of each stage hold: every plugin is asked once per stage, with the facts and units of that stage.
// Thread: main.
#pragma once

#include "plan/create_plugins.h"
#include "plan/prepared_run.h"

namespace drivetrain {

// Fills in RunPlan::stage_memories. `chain`: the whole model. `plan` of plugins is called again, last of all for this
// rank's own stage.
void plan_stage_memories(PreparedRun& run, const NamedPlugins& plugins, const std::vector<UnitPtr>& chain);

}  // namespace drivetrain
