// A JSON file whose first line is the digest of all other bytes, so that one changed bit anywhere in it is found.
//
//   {"xxh3_128": "0123456789abcdef0123456789abcdef",
//    "format": ...}
#pragma once

#include <string>

#include <drivetrain/value.h>

#include "digest.h"

namespace drivetrain::sharded {

// The text of a file for `body`, an object that is not empty.
std::string signed_json(const Value& body);

// The object, with its digest as a member. Error(checkpoint) naming `path` if a byte was changed or is missing, if it
// is no such file, or if its "format" or "version" is another one than `format` and this version's.
Value read_signed_json(const std::string& path, const std::string& text, const std::string& format);

// The file's text. Error(checkpoint) if it is missing or larger than any that the store writes; Error(io).
std::string read_text(const std::string& path);

}  // namespace drivetrain::sharded
