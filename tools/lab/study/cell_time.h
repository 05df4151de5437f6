// How long a step of each cell takes on a machine, by `drivetrain plan --hardware`.
#pragma once

#include <string>
#include <vector>

#include "study/cell_plan.h"

namespace drivetrain::study {

// Fills in CellPlan::step_s, or why there is none, of cells that would run. `hardware`: a file, or the name of one in
// configs/hardware. Throws Error(config) with the first reason if no cell gets a time: the file is missing, or another
// device's.
void plan_times(std::vector<CellPlan>& plans, const Questions& questions, const std::string& base,
                const std::string& hardware);

}  // namespace drivetrain::study
