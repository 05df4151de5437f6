// What a planned run's rank does in a step, in amounts that step_time.h turns into seconds. It reads what plugins said
// of memory and messages while the run was planned, and knows kinds only. Main thread.
#pragma once

#include "internal.h"
#include "plan/prepared_run.h"
#include "predict/step_work.h"

namespace drivetrain {

DRIVETRAIN_INTERNAL StepWork work_of_run(const PreparedRun& run);

// Per token, forward and backward, the square of attention halved: what "model FLOPs" means in the report.
DRIVETRAIN_INTERNAL double model_flops_of(const RunPlan& plan);

}  // namespace drivetrain
