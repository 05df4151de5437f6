// Every legal cell of the matrix, and a table of what came out.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::test {

// Options: --jobs N (processes side by side, default 1), --table FILE (markdown), --log FILE (one line per cell),
// --only TEXT (cells whose name has it), --every N (each Nth of them), --models turns|both (the cells' models: in turn,
// which is the default, or each). Returns 0 if all cells are within their tolerance,
// 1 if not, 2 for options that are wrong or choose no cell.
//
// Cells run in child processes, so that one that crashes costs only itself.
int run_all(const std::vector<std::string>& arguments);

}  // namespace drivetrain::test
