// The mesh that plugins ask for in `plan`.
#pragma once

#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>

namespace drivetrain::test {

// One axis per claim, fastest first; the one that takes the rest gets it. Error(config) with every refusal and every
// need that nobody offers, and where the sizes do not multiply to the world of the context's run.
std::vector<Axis> axes_of(const PlanRecord& context);

}  // namespace drivetrain::test
