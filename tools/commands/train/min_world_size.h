// How many ranks a configuration needs at least, for commands that look at one without being started on as many.
// Main thread.
#pragma once

#include <vector>

#include "plan/prepared_run.h"

namespace drivetrain {

// The product of the sizes that plugins claim on the mesh, data parallelism left out.
// 1 where one of them cannot be created: prepare_run says why.
int64_t min_world_size(const RunSettings& settings, const std::vector<ChosenPlugin>& chosen, const Registry& registry,
                       const RankSetup& setup);

}  // namespace drivetrain
