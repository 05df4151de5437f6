// Files that a preparation makes, as they are found among texts.
#pragma once

#include <string>

namespace drivetrain {

// What a file is if a preparation made it, "the index of token files" for one; empty if it may be a text. Error(io) if
// it cannot be read.
std::string made_by_preparation(const std::string& path);

}  // namespace drivetrain
