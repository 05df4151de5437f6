// `drivetrain checkpoint verify`: every byte of checkpoints against their digests. Main thread.
#pragma once

#include <iosfwd>
#include <string>

#include "checkpoint_tools/stored_run.h"
#include "internal.h"

namespace drivetrain {

// Checks the checkpoint `tag`, or all of them if it is "". Prints a line per checkpoint and per problem as soon as they
// are known, or one JSON object at the end. Returns the exit code: 6 if one is damaged.
DRIVETRAIN_INTERNAL int verify_checkpoints(const StoredRun& run, const std::string& tag, bool json, std::ostream& out);

}  // namespace drivetrain
