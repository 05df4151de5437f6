// The options of `drivetrain plan`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

inline constexpr Option kPlanCommand[] = {
    ranks("plan for this many ranks; default: what the config asks for"),
    {.name = "--hardware",
     .value = "FILE",
     .help = "the machine: a file, or the name of one in configs/hardware, such as h100",
     .takes = Takes::file},
    {.name = "--profile",
     .value = "NAME",
     .help = "plan as another system trains: the name of one in configs/published/systems.json, or a file; its machine "
             "is the default of --hardware",
     .takes = Takes::text,
     .excludes = "--search"},
    {.name = "--search",
     .help = "look for the fastest way to split the run that fits the machine: tp, pp, cp, sharding, recompute, "
             "micro-batch",
     .needs = "--hardware"},
    {.name = "--space",
     .value = "FILE",
     .help = "with --search: other ways to look at",
     .takes = Takes::file,
     .needs = "--search"},
    {.name = "--table",
     .value = "NAME",
     .help = "instead of a config: the rows of a published table, planned against printed; \"all\": every table",
     .takes = Takes::text,
     .excludes = "--search"},
    kSet,
    kDeepSpeed,
    kPluginPath,
    {.name = "--json", .help = "print one JSON object"}};

inline constexpr Option kBenchHardware[] = {
    alone(with_default(processes("processes to start; they measure at the same time"), "2")),
    {.name = "--output", .value = "FILE", .help = "write the file that `plan --hardware` reads", .takes = Takes::file},
    kDevice,
    kThreads,
    kJson,
    kPluginPath};

}  // namespace drivetrain::cli::rows
