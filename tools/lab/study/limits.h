// Which cells end badly by their own plan: said before the first run.
#pragma once

#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/design.h"

namespace drivetrain::study {

// One line for each cell that does not fit, by the machine's file, by "memory_limit_bytes" or by this host's memory, or
// that is planned to run beyond "timeout_s", and one where all runs together are planned beyond "budget_s".
// `memory_bytes`: of this host; 0: not known.
std::vector<std::string> expected_failures(const StudyFile& study, const std::vector<Cell>& cells,
                                           const std::vector<CellPlan>& plans, double memory_bytes);

}  // namespace drivetrain::study
