// Everything that a training run is refused for before it allocates: what `train`, `train --plan` and `config check`
// share.
#pragma once

#include "plan/prepare_run.h"

namespace drivetrain {

// prepare_run for training, and whether the final weights can be written. Throws Error.
std::unique_ptr<PreparedRun> plan_training(const RunSettings& settings, std::vector<ChosenPlugin> chosen,
                                           const Registry& registry, const RankSetup& setup);

// Throws Error(out_of_memory) with both figures if the states of this rank alone are more than this host, its control
// group or its limits have; warns if they are with what a step needs besides. Only where the run is about to begin:
// plans are made for other machines too.
void check_host_memory(const RunPlan& plan, Log& log);

}  // namespace drivetrain
