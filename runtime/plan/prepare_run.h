// From chosen plugins to a planned run. Main thread.
#pragma once

#include <memory>
#include <vector>

#include "internal.h"
#include "plan/prepared_run.h"

namespace drivetrain {

// Creates the plugins, lets them negotiate, solves mesh and batch sizes, and builds the model on the meta device. A
// plugin that refuses the run is replaced by the next of its order of preference, with a warning; where there is none,
// Error with all problems. No rank waits for another in here.
DRIVETRAIN_INTERNAL std::unique_ptr<PreparedRun> prepare_run(const RunSettings& settings,
                                                             std::vector<ChosenPlugin> chosen, const Registry& registry,
                                                             const RankSetup& setup, Purpose purpose);

}  // namespace drivetrain
