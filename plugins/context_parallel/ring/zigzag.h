// Which positions a rank of the ring has: of twice as many chunks as ranks, rank r has r and the one as far from the
// end.
//
// Under a causal mask a chunk's work grows with its place; the two chunks of every rank make the same sum. Pure; any
// thread.
#pragma once

#include <drivetrain/random.h>

#include <vector>

namespace drivetrain::ring {

// The two chunks of rank `index` of `ranks`, ascending; neighbouring ranges are one. Error(config) if they would not be
// of one size.
std::vector<RowRange> zigzag(const std::vector<RowRange>& positions, int64_t index, int64_t ranks);

}  // namespace drivetrain::ring
