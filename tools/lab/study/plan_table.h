// `drivetrain study FILE --plan`.
#pragma once

#include <string>
#include <vector>

#include "study/cell_plan.h"

namespace drivetrain::study {

// `wall_s`: seconds of a run, as far as an earlier start of the study knows; 0: not known.
std::string plan_text(const StudyFile& study, const Design& design, const std::vector<CellPlan>& plans, double wall_s);
std::string plan_json(const StudyFile& study, const Design& design, const std::vector<CellPlan>& plans, double wall_s);

}  // namespace drivetrain::study
