// The options of `drivetrain study`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

inline constexpr Option kStudy[] = {
    {.name = "--plan",
     .help = "list the cells with planned memory and time, those that are refused, and the cost; run none"},
    {.name = "--hardware",
     .value = "FILE",
     .help = "with --plan: the machine, for planned times: a file, or the name of one in configs/hardware",
     .takes = Takes::file,
     .needs = "--plan"},
    {.name = "--resume", .help = "go on with the study that has begun in its folder"},
    {.name = "--grow",
     .help = "the same with more repeats, levels or rows, or another outcome: everything that ran is kept"},
    {.name = "--live",
     .help = "report.html after every run too, as a page that loads itself again until the study ends"},
    {.name = "--reference",
     .value = "CELL",
     .help = "with report: compare all cells with this one",
     .takes = Takes::text},
    {.name = "--into",
     .value = "FOLDER",
     .help = "with merge: the folder of the study that both become",
     .takes = Takes::folder},
    {.name = "--outcome",
     .value = "OUTCOME",
     .help = "with compare: a figure of metrics.jsonl, such as valid_loss, or an outcome as a study's file has it",
     .takes = Takes::text},
    {.name = "--any-environment", .help = "with compare: also where the machines differ"},
    {.name = "--json", .help = "with --plan or compare: print one JSON object"}};

}  // namespace drivetrain::cli::rows
