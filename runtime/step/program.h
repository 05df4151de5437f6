// A schedule's program as the list of unit visits it stands for, so that strategies can look ahead.
#pragma once

#include <vector>

#include <drivetrain/schedule.h>
#include <drivetrain/step_context.h>

#include "internal.h"

namespace drivetrain {

// Units [first, last) of each of this stage's chunks.
struct ChunkUnits {
  int64_t first = 0, last = 0;
};

// Every visit of the program in order, with first and last marked per unit and direction.
DRIVETRAIN_INTERNAL std::vector<Visit> expand(const Program& program, const std::vector<ChunkUnits>& chunks);

}  // namespace drivetrain
