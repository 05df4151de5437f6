// The options of `drivetrain flight`.
#pragma once

#include "cli/command.h"

namespace drivetrain::cli::rows {

inline constexpr Option kFlight[] = {
    {.name = "--last",
     .value = "N",
     .help = "calls that are shown of every rank",
     .takes = Takes::whole,
     .otherwise = "8",
     .counted = "calls",
     .least = 1,
     .most = 512},
    {.name = "--json", .help = "print one JSON object"},
};

}  // namespace drivetrain::cli::rows
