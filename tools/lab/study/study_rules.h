// Keys of a study that say how its runs are dispatched.
#pragma once

#include <drivetrain/value.h>

#include "study/study_file.h"

namespace drivetrain::study {

// "allow_load", "dispatch" and "early_stop"; throws Error(config) with place and remedy.
void read_rules(const Value& study, StudyFile& file);

}  // namespace drivetrain::study
