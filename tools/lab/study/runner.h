// Runs a study: plans its cells, and then runs them in the order of the design, with every start and end in the ledger.
#pragma once

#include <string>

#include "study/study_file.h"

namespace drivetrain::study {

struct RunRequest {
  std::string program;        // the path of `drivetrain`
  std::string hardware = {};  // for planned times, instead of the study's own
  bool plan_only = false, resume = false, grow = false, json = false;
  bool live = false;  // a page of the report after every run
};

// The exit code: 0, or 130 or 143 where a signal ended it before its last run. Throws Error.
int run_study(const StudyFile& study, const RunRequest& request);

}  // namespace drivetrain::study
