// A file to be read at any place, for readers of other people's formats: nothing is mapped, so a file that is truncated
// meanwhile is an error and not a crash. The first few hundred stay open, so that they may be removed meanwhile; the
// others are opened for each read, since a folder may have more of them than a process may open.
// Thread: const calls from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <drivetrain/error.h>

namespace drivetrain {

class StoredFile {
 public:
  // Error(config) if there is no such file, Error(io) if it cannot be opened or is no regular file.
  explicit StoredFile(const std::string& path);
  ~StoredFile();
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // when this was made
  // Error(checkpoint) if the range does not lie in the file, Error(io) if it cannot be read or is another file now.
  void read(uint64_t offset, void* to, uint64_t bytes) const;

 private:
  const std::string path_;
  uint64_t bytes_ = 0, device_ = 0, inode_ = 0;
  int descriptor_ = -1;  // -1: it is opened for each read
};

// The error for a file that does not have the form that it should have: "PATH: at byte N: ...".
template <class... Parts>
[[nodiscard]] Error bad_file(const std::string& path, uint64_t byte, const Parts&... parts) {
  return fail(ErrorCode::checkpoint, path, ": at byte ", byte, ": ", parts...);
}

}  // namespace drivetrain
