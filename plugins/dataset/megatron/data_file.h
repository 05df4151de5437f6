// One open file, read at any place. It is not mapped: a bad sector, or a file that is cut short while it is in use,
// would end the process by a signal instead of being an error.
// Thread: const calls from any thread.
#pragma once

#include <drivetrain/error.h>

#include <cstdint>
#include <string>

namespace drivetrain::megatron {

class DataFile {
 public:
  // Error(config) if there is no such file, Error(io) if it cannot be opened or is no regular file.
  explicit DataFile(const std::string& path);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }        // when it was opened
  int64_t mtime_ns() const { return mtime_ns_; }  // since 1970
  // Error(io) with the place where reading failed.
  void read(int64_t offset, void* to, int64_t bytes) const;
  // Tells the system that these bytes are read soon; a failure is not seen.
  void expect(int64_t offset, int64_t bytes) const;

 private:
  const std::string path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0, mtime_ns_ = 0;
};

}  // namespace drivetrain::megatron
