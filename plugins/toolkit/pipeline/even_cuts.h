// A chain of units in contiguous pieces of about one cost. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace drivetrain {

// The first unit of each of `pieces` pieces (1 to as many as there are units). The largest piece is as small as can be;
// of those cuts the one with the smallest sum of squares is taken, and of those the one whose larger pieces come last.
std::vector<int64_t> even_cuts(const std::vector<double>& costs, int64_t pieces);

}  // namespace drivetrain
