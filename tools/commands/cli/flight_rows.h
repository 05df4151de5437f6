// The options of `drivetrain flight`.
#pragma once

#include "cli/command.h"

namespace drivetrain::cli::rows {

inline constexpr Option kFlight[] = {
    whole("--last", "N", "calls that are shown of every rank", 1, 512).by_default("8").counts("calls"),
    flag("--json", "print one JSON object"),
};

}  // namespace drivetrain::cli::rows
