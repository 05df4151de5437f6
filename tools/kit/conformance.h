// `drivetrain conformance FILE.so [KIND/NAME] ...`: starts the program with the suites, drivetrain-conformance, which
// lies beside this one where tests were built. Main thread.
#pragma once

#include "cli/arguments.h"

namespace drivetrain::kit {

// Becomes the other program. Returns only by throwing KitError (3: it is not installed).
[[noreturn]] void conformance(const cli::Arguments& arguments);

}  // namespace drivetrain::kit
