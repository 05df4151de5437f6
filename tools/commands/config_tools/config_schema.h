// The JSON Schema (2020-12) of a whole config with the installed plugins, for editors. Main thread.
#pragma once

#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

// Opens every library that is not refused. Values that may be written in any case, such as names of types, are
// patterns.
DRIVETRAIN_INTERNAL Value config_schema(const Registry& registry);

}  // namespace drivetrain
