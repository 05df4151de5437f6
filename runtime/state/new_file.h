// Files and folders that appear whole or not at all: written under a temporary name beside the final one, synced to
// disk, then renamed. What was not committed is removed. A symbolic link stays, and the file that it points to is
// replaced, unless the link itself is to give way. What exists and is no file (/dev/stdout, a pipe, a terminal) is
// written through, in the order of the bytes.
//
// Thread: one object by one thread. Errors: Error(io) naming the path, the bytes wanted and the bytes free.
#pragma once

#include <cstdint>
#include <string>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL NewFile {
 public:
  // What becomes of a symbolic link at `path`.
  enum class Links { followed, replaced };
  // `bytes`: the final size; the space is reserved at once where the file system can, so a full disk is found first.
  NewFile(const std::string& path, uint64_t bytes, Links links = Links::followed);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write_at(uint64_t offset, const void* data, uint64_t bytes);
  void commit();  // replaces what was at `path`
  // The same, but only if nothing is at `path`; false: something is, and stays. Of several callers one gets true.
  bool commit_new();

 private:
  void create();
  void close_file();

  const std::string path_;
  std::string target_, temporary_;  // temporary_ is empty where the bytes go through to what exists
  const uint64_t bytes_;
  uint64_t passed_ = 0;  // bytes that went through
  int descriptor_ = -1;
};

// Removes what writers left in `folder` that are gone:
// processes of this host that ended, or, with `all`, whoever it was.
// The latter is for the owner of a folder that nobody else writes to.
DRIVETRAIN_INTERNAL void remove_unfinished(const std::string& folder, bool all);

class DRIVETRAIN_INTERNAL NewFolder {
 public:
  // Makes the folders above `path` too. Error(config) if `path` is there and not an empty folder.
  explicit NewFolder(const std::string& path);
  // Whether a folder can appear at `path`: nothing is there, or an empty folder, which is no link.
  static bool is_free(const std::string& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& temporary() const { return temporary_; }  // put the files here, each through NewFile
  void commit();

 private:
  const std::string path_, temporary_;
  bool committed_ = false;
};

}  // namespace drivetrain
