// Which positions of a sequence a rank has, where several ranks share sequences. Pure; any thread.
#pragma once

#include <vector>

#include <drivetrain/strategy.h>

namespace drivetrain {

// What `cuts`, applied one after another, leave of `positions`.
inline std::vector<RowRange> apply_cuts(const std::vector<Builder::SequenceCut>& cuts,
                                        std::vector<RowRange> positions) {
  for (const Builder::SequenceCut& cut : cuts) positions = cut(positions);
  return positions;
}

}  // namespace drivetrain
