// Files of /proc, whose process may end between open and read.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace drivetrain {

// What is left to read, up to where a read fails, as it does with ESRCH. An iterator over the stream would throw.
inline std::string rest_of(std::istream& file) {
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
// Empty, or what was read of it, where its process is gone. Thread: any.
inline std::string proc_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return rest_of(file);
}

}  // namespace drivetrain
