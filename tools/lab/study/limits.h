// Which cells end badly by their own plan: said before the first run.
#pragma once

#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/design.h"

namespace drivetrain::study {

// Bytes of this host, and of the smallest of its GPUs as the driver's library says; 0: not known.
struct HostMemory {
  double host = 0, gpu = 0;
};
HostMemory memory_here(const std::string& nvml = "libnvidia-ml.so.1");

// How a run of the cell ends by its plan, where that is badly: why it does not fit, and why it takes too long. "" is
// well, or not known.
struct ExpectedEnd {
  std::string too_large, too_slow;
  std::string too_short;  // for an outcome
};
ExpectedEnd expected_end(const StudyFile& study, const CellPlan& plan, const HostMemory& here);

// Where outcomes are of what was learned and repeats differ in nothing; else "".
std::string advice_on_seeds(const StudyFile& study);

// Throws Error(config) where an outcome lies beyond the last step of the reference, the first of the cells, by its
// plan.
void check_reach(const StudyFile& study, const std::vector<CellPlan>& plans);

// One line for each cell that does not fit, by the machine's file, by "memory_limit_bytes" or by this host's memory,
// that is planned to run beyond "timeout_s", or that ends before an outcome, and one where all runs together are
// planned beyond "budget_s".
std::vector<std::string> expected_failures(const StudyFile& study, const std::vector<Cell>& cells,
                                           const std::vector<CellPlan>& plans, const HostMemory& here);

}  // namespace drivetrain::study
