// What a study begins with: the config that its cells change, and the first line of its ledger.
#pragma once

#include <string>

#include "study/design.h"

namespace drivetrain::study {

// The base's path. A base that stands in the study becomes base.json in `folder`, which is made; what it extends is
// relative to the study's file. `again`: the one that is there stays. Throws Error(io).
std::string base_file(const StudyFile& study, const std::string& folder, bool again);

// Everything that runs of one ledger have in common.
Value head_of(const StudyFile& study, const Design& design, const std::string& build);

// Runs of two versions of a study, a config, a program or a machine do not belong into one ledger: throws Error(config)
// with what differs. `path`: of the study's file.
void check_same(const Value& before, const Value& now, const std::string& path);

}  // namespace drivetrain::study
