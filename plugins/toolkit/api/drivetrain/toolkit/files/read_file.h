// Small files that somebody else has written, as one text, and the names in a folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {

// All bytes of the file; no value if there is no such file. Does not wait for a writer of a pipe. Thread: any.
// Error(wrong) naming the path if it is no regular file (a folder, a pipe, a loop of links) or longer than `most`
// bytes; Error(io) if the system cannot open or read it, or if it becomes shorter.
std::optional<std::string> read_file(const std::string& path, uint64_t most, ErrorCode wrong = ErrorCode::checkpoint);

// Names of the folders in `folder`, or of everything else in it, sorted; none if it cannot be read. Thread: any.
enum class InFolder { folders, files };
std::vector<std::string> names_in(const std::string& folder, InFolder what);

}  // namespace drivetrain
