// The options of `drivetrain study`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

inline constexpr Option kStudy[] = {
    flag("--plan", "list the cells with planned memory and time, those that are refused, and the cost; run none"),
    file("--hardware", "FILE",
         "with --plan: the machine, for planned times: a file, or the name of one in configs/hardware")
        .only_with("--plan"),
    flag("--resume", "go on with the study that has begun in its folder"),
    flag("--grow", "the same with more repeats, levels or rows, or another outcome: everything that ran is kept"),
    flag("--live", "report.html after every run too, as a page that loads itself again until the study ends"),
    text("--reference", "CELL", "with report: compare all cells with this one"),
    folder("--into", "FOLDER", "with merge: the folder of the study that both become"),
    text("--outcome", "OUTCOME",
         "with compare: a figure of metrics.jsonl, such as valid_loss, or an outcome as a study's file has it"),
    flag("--any-environment", "with compare: also where the machines differ"),
    flag("--json", "with --plan or compare: print one JSON object")};

}  // namespace drivetrain::cli::rows
