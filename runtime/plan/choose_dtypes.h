// The types of a run: what its precision says, and over it what the configuration asks for. Main thread.
#pragma once

#include "plan/prepared_run.h"

namespace drivetrain {

// Sets Services::dtypes, RunPlan::dtypes and RunFacts::compute_dtype, before anyone plans or allocates. Error(config)
// for types that do not go together; `registry` tells which precisions there are to choose from.
void choose_dtypes(PreparedRun& run, const Registry& registry);

}  // namespace drivetrain
