// What a shared library wants of others: which libraries, by which paths, and which symbols. Read from its bytes;
// nothing of it is executed. No state; any thread.
#pragma once

#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

struct ElfLinks {
  std::string problem;                 // empty, or why they cannot be read: a phrase that continues "<path> ..."
  std::vector<std::string> needed;     // "libtorch_cpu.so"
  std::vector<std::string> run_paths;  // folders, with $ORIGIN replaced
  std::vector<std::string> wanted;     // symbols without which it cannot be opened
  std::vector<std::string> given;      // symbols that others find in it
};

ElfLinks read_links(const std::string& path);

}  // namespace drivetrain
