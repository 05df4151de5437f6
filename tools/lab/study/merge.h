// Two studies of one base, run in two folders, as one.
#pragma once

#include <string>

namespace drivetrain::study {

struct MergeRequest {
  std::string a, b, into;  // folders; `into` holds no study yet
};

// Writes the ledger of both into `into`, and its report; returns what it did, in words. Runs stay where they are. Where
// both have runs of one repeat of one cell, the repeats of `b` come after those of `a`. Throws Error(config) with what
// differs where the two are not of one base, one reference, one machine and one build.
std::string merge_studies(const MergeRequest& request);

}  // namespace drivetrain::study
