// Files of an input, where readers want a path. One folder per process, in memory where the system has such a place.
#pragma once

#include <string>

namespace drivetrain::fuzz {

// The path of a file of this name; its folder is there.
std::string scratch_path(const std::string& name);
// The same, with this content.
std::string scratch_file(const std::string& name, const std::string& bytes);
// A file of the golden data, or of the configs: a path from the root of the source tree.
std::string source_file(const std::string& path);
std::string source_path(const std::string& path);

}  // namespace drivetrain::fuzz
