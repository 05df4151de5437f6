// `drivetrain study FILE --plan`.
#pragma once

#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/limits.h"

namespace drivetrain::study {

// `wall_s`: seconds of a run, as far as an earlier start of the study knows; 0: not known. `here`: this machine.
std::string plan_text(const StudyFile& study, const Design& design, const std::vector<CellPlan>& plans, double wall_s,
                      const HostMemory& here);
std::string plan_json(const StudyFile& study, const Design& design, const std::vector<CellPlan>& plans, double wall_s,
                      const HostMemory& here);

}  // namespace drivetrain::study
