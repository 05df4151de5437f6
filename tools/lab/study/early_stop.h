// Cells that cannot win any more, by a rule that a study's file states.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/analysis.h"

namespace drivetrain::study {

struct StoppedCell {
  std::string cell, rival;
  int pairs = 0;
  double change = 0, p = 0, level = 0;  // against the rival: one-sided, and what it had to be below
  Scale scale = Scale::ratio;
};

// Those among `competing` (ids) that are worse than the best cell so far: a one-sided paired t-test over the repeats
// that both have, at the study's level divided over all rivals and all looks. So the chance that the cell that is truly
// the best is ever stopped is at most that level, whoever leads at a look, where pairs' differences are normal.
// `rivals`: that a cell has at the study's begin; `looks`: how often the study can ask. The reference and its A/A pair
// run on.
std::vector<StoppedCell> cells_to_stop(const Analysis& analysis, const std::vector<std::string>& competing,
                                       double level, int64_t rivals, int64_t looks);

}  // namespace drivetrain::study
