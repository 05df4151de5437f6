// Files that are packed, or hold tables, where a text or lines of JSON are wanted. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace drivetrain {

inline constexpr size_t kPackedSignature = 8;  // bytes at the begin of a file that tell what it is

// Error(io) that says what the file is and how to unpack it, if its first bytes are those of gzip, zstd, xz, bzip2,
// zip, Parquet or Arrow. `reader` is who wanted a text: "dataset/instruction".
void refuse_packed(std::string_view begin, std::string_view reader, const std::string& path);

}  // namespace drivetrain
