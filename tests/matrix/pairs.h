// Few cells in which every pair of values of two factors occurs that occurs in any legal cell.
#pragma once

#include <vector>

#include "matrix/cells.h"

namespace drivetrain::test {

// Greedy and without chance: again and again the cell that has most of the pairs still missing; of equal ones that
// whose values were used least, then the first.
std::vector<Cell> cover_pairs(const std::vector<Cell>& legal);

// How many pairs of values these cells have.
size_t count_pairs(const std::vector<Cell>& cells);

}  // namespace drivetrain::test
