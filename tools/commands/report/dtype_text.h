// Which types a run computes and stores in, for people: one small table at the start.
#pragma once

#include <string>

#include "internal.h"
#include "plan/run_plan.h"

namespace drivetrain {

// A line for each of parameter, compute, gradient, reduce and optimizer:
// the type, and what chose it - a plugin ("precision/..."), a key of the configuration or "default". One of products
// follows compute where they are not simply float32: the type that is multiplied, and by what.
// No newline at the end.
DRIVETRAIN_INTERNAL std::string dtype_table(const RunPlan& plan);

}  // namespace drivetrain
