// Gives the model's parameters to the groups of the config. Thread: main.
#pragma once

#include "plan/prepared_run.h"

namespace drivetrain {

// Once the model is built: counts what each group has into RunPlan::param_groups, freezes parameters, and fills in
// PreparedRun::param_groups. A group without a parameter, two that claim one, and a model of which nothing is trained
// are problems.
void apply_param_groups(PreparedRun& run, Problems& problems);

}  // namespace drivetrain
