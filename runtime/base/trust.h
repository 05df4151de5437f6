// Which files may be loaded into this process. A file is refused if other users can change it or a folder above it.
#pragma once

#include <map>
#include <string>

#include "internal.h"

namespace drivetrain {

// Empty if the file or folder may be used, else why not, with its mode, owner and remedy: "/x is writable by others
// (...)". Looks at the path as given and with symbolic links resolved, up to the root. All of it belongs to root or to
// the user, also where the user is root, and nobody else may write it: no other users, and no group but the private one
// of its owner or of the user. A sticky folder of root's (as /tmp is) may be writable by others.
// `looked_at`: what was found of folders, for many files of one folder that are looked at together.
using FolderTrust = std::map<std::string, std::string>;
DRIVETRAIN_INTERNAL std::string trust_problem(const std::string& path, FolderTrust& looked_at);
DRIVETRAIN_INTERNAL std::string trust_problem(const std::string& path);

DRIVETRAIN_INTERNAL std::string sha256(const std::string& bytes);  // hexadecimal

struct SealedCopy {
  std::string path;    // "/proc/self/fd/7"; the descriptor stays open for the life of the process
  std::string sha256;  // of exactly the bytes that the path gives
};
// Copies a file into memory that can no longer be written, so that what was hashed is what will be opened.
// Throws Error(plugin).
SealedCopy seal(const std::string& path);

DRIVETRAIN_INTERNAL std::string read_bytes(const std::string& path);  // Error(plugin) if it cannot be read

}  // namespace drivetrain
