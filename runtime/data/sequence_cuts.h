// Which positions of a sequence a rank has, where several ranks share sequences. Pure; any thread.
#pragma once

#include <vector>

#include <drivetrain/strategy.h>

namespace drivetrain {

// What `cuts`, applied one after another, leave of `positions`. `cu_seqlens`: Batch::cu_seqlens.
inline std::vector<RowRange> apply_cuts(const std::vector<Builder::SequenceCut>& cuts, std::vector<RowRange> positions,
                                        const std::vector<int64_t>& cu_seqlens = {}) {
  for (const Builder::SequenceCut& cut : cuts) positions = cut(positions, cu_seqlens);
  return positions;
}

}  // namespace drivetrain
