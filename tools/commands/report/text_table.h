// Tables of plain text. Pure functions; any thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

using TextRow = std::vector<std::string>;

// Columns two blanks apart, each as wide as its widest cell; the last one is left as it is. `right`: numbers of columns
// whose cells end at the same place instead of beginning there. Every line ends with a line break.
DRIVETRAIN_INTERNAL std::string aligned(const std::vector<TextRow>& rows, const std::string& indent,
                                        const std::set<size_t>& right = {});

}  // namespace drivetrain
