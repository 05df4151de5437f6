// Is an option table right in itself? Authors make such mistakes, users meet them. Pure; any thread.
#pragma once

#include <string>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

// Empty, or what contradicts itself: a name, alias or old name given twice; a range or list of choices that is none; a
// default outside of them; an old name that leads nowhere. Names the option and the value.
DRIVETRAIN_INTERNAL std::string contradiction_in(const OptionTable& table);

}  // namespace drivetrain
