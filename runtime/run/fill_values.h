// The values that a run begins with: from the folder that the model names, from those of strategies, by Param::init.
#pragma once

#include <vector>

#include "internal.h"
#include "run/run.h"

namespace drivetrain {

// `all`: what this rank holds. Says what does not come from a folder although the model's weights do.
DRIVETRAIN_INTERNAL void fill_values(Run& run, const std::vector<Trainables>& all);

}  // namespace drivetrain
