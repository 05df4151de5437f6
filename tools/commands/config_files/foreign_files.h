// Files of other programs that people hand over as a config: what such a file is, and the nearest way from it to a run.
// Told by names that only these programs use. Pure functions; any thread.
#pragma once

#include <string>

#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

// "this is accelerate's configuration ...\n   <what to do>"; "" if it is none of those that are known. A config of ours
// or DeepSpeed's is none, whatever else it holds.
DRIVETRAIN_INTERNAL std::string foreign_object(const Value& config);

// The same of a text that is no JSON: YAML, TOML, a script, a command line.
DRIVETRAIN_INTERNAL std::string foreign_text(const std::string& text);

}  // namespace drivetrain
