// Opens LibTorch and libdrivetrain.so by full path, so that neither a library path nor the current folder decides which
// one is trained with. Main thread; nothing is ever closed.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

// The release of the torch package at `folder` ("2.11.0", "2.11.0+cpu"), read from its files without running any of
// them;
// "" if none of them says.
std::string torch_release(const std::string& folder);

// Calls drivetrain_main of <folder of the program>/../lib/libdrivetrain.so; words[0] is the command. LibTorch is the
// one of DRIVETRAIN_TORCH, else the one of the build. Throws UsageError if a library is missing or of another release.
int run_in_library(const std::vector<std::string>& words);

}  // namespace drivetrain::program
