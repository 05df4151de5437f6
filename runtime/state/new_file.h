// Files and folders that appear whole or not at all: written under a temporary name beside the final one, synced to
// disk, then renamed. What was not committed is removed.
//
// Thread: one object by one thread. Errors: Error(io) naming the path, the bytes wanted and the bytes free.
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/export.h>

namespace drivetrain {

class DRIVETRAIN_API NewFile {
 public:
  // `bytes`: the final size; the space is reserved at once where the file system can, so a full disk is found first.
  NewFile(const std::string& path, uint64_t bytes);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write_at(uint64_t offset, const void* data, uint64_t bytes);
  void commit();  // replaces what was at `path`

 private:
  const std::string path_, temporary_;
  const uint64_t bytes_;
  int descriptor_ = -1;
};

class DRIVETRAIN_API NewFolder {
 public:
  // Makes the folders above `path` too. Error(config) if `path` is there and not an empty folder.
  explicit NewFolder(const std::string& path);
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
