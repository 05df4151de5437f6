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

DRIVETRAIN_INTERNAL ElfLinks read_links(const std::string& path);

// The symbols that a library wants of the insides of libdrivetrain.so, version DRIVETRAIN_PRIVATE, as C++ names them.
// They change with every build, so a plugin may link none. A file that cannot be read wants none: opening it says why.
DRIVETRAIN_INTERNAL std::vector<std::string> private_symbols(const std::string& path);

}  // namespace drivetrain
