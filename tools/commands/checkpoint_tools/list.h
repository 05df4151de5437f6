// `drivetrain checkpoint list`: what checkpoints a folder holds, without reading their data. Main thread.
#pragma once

#include <string>

#include <drivetrain/value.h>

#include "checkpoint_tools/stored_run.h"
#include "internal.h"

namespace drivetrain {

DRIVETRAIN_INTERNAL std::string list_text(const StoredRun& run);
DRIVETRAIN_INTERNAL Value list_value(const StoredRun& run);

// One line per left-over with two blanks in front, below a heading; "" where there is none.
std::string left_overs_text(const StoredRun& run);
Value left_overs_value(const StoredRun& run);

}  // namespace drivetrain
