// What is read from a pipe or an open descriptor - `train <(tool)`, a FIFO, /dev/stdin - and no file: how that is
// recognised, how much and how long, and what a run of it is called. The launcher reads it once for all ranks, a rank
// alone by itself, and both must do the same. Pure functions; any thread. Also part of the program itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>

#include "internal.h"

namespace drivetrain {

constexpr size_t kLargestText = 64 << 20;      // bytes of a file of settings
constexpr std::chrono::seconds kPipeTime{10};  // from its opening to its end
constexpr const char* kPipedName = "config";   // of a run whose config has no file's name

// The number in /dev/fd/63, /proc/self/fd/63, /dev/stdin, /dev/stdout and /dev/stderr; -1 for any other path.
DRIVETRAIN_INTERNAL int descriptor_named(const std::string& path);

// Does such a descriptor, or a pipe with a name, lie at the path?
DRIVETRAIN_INTERNAL bool is_piped(const std::string& path);

// A document that was handed over as an open descriptor or a pipe (`<(tool)`, /dev/stdin) lies in no folder of the
// user's: empty then, so that its relative paths begin in the current folder. One that `launch --copy` has brought here
// (DRIVETRAIN_CONFIG_COPY) counts as in the folder that it came from (DRIVETRAIN_CONFIG_FOLDER).
DRIVETRAIN_INTERNAL std::filesystem::path folder_of_document(const std::string& path);

}  // namespace drivetrain
