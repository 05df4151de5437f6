// The options of `drivetrain plan`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

inline constexpr Option kPlanCommand[] = {
    ranks("plan for this many ranks; default: what the config asks for"),
    file("--hardware", "FILE", "the machine: a file, or the name of one in configs/hardware, such as h100"),
    text("--profile", "NAME",
         "plan as another system trains: the name of one in configs/published/systems.json, or a file; its machine is "
         "the default of --hardware")
        .not_with("--search"),
    flag(
        "--search",
        "look for the fastest way to split the run that fits the machine: tp, pp, cp, sharding, recompute, micro-batch")
        .only_with("--hardware"),
    file("--space", "FILE", "with --search: other ways to look at").only_with("--search"),
    text("--table", "NAME",
         "instead of a config: the rows of a published table, planned against printed; \"all\": every table")
        .not_with("--search"),
    file("--svg", "FILE",
         "with --table: draw tokens per rank and second over the ranks, planned and printed, into this file")
        .only_with("--table"),
    kSet,
    kDeepSpeed,
    kPluginPath,
    flag("--json", "print one JSON object")};

inline constexpr Option kBenchHardware[] = {
    processes("processes to start; they measure at the same time").by_default("2").not_under_launch(),
    file("--output", "FILE", "write the file that `plan --hardware` reads"),
    kDevice,
    kThreads,
    kJson,
    kPluginPath};

}  // namespace drivetrain::cli::rows
