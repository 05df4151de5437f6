// The named sets of the section `eval`: each one is an evaluation plugin with options, and perhaps an interval of its
// own. Main thread; no state.
#pragma once

#include <vector>

#include "config/sections.h"
#include "internal.h"

namespace drivetrain {

// One selection per set, in the order of the file; switched off where the set or the section is. Problems name the set.
DRIVETRAIN_INTERNAL std::vector<Selection> read_eval_sets(const Value& config, Problems& problems);

// The set as a config has it: {"type", "params", "interval", "enabled"}, the last two where they say something.
// `options`: all of the plugin's.
Value eval_set_value(const Selection& set, Value options);

}  // namespace drivetrain
