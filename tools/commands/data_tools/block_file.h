// A file that is read through blocks of some megabytes. Nothing is mapped: a bad sector, or a file that is cut short
// while it is read, is an error with a name and a place, where a mapping would end the process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

// Exactly `bytes` bytes from `offset` on. Error(io) naming the byte; `whole`: the size that the file had before.
void read_exactly(int descriptor, const std::string& path, uint64_t offset, void* data, uint64_t bytes, uint64_t whole);

// An open file. Calls from any thread.
class DRIVETRAIN_INTERNAL OpenFile {
 public:
  explicit OpenFile(const std::string& path);  // Error(io)
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  void read(uint64_t offset, void* data, uint64_t bytes) const;
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened

 private:
  const std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// The block of a file that was asked for last; what is read from front to back is read once. One thread.
class BlockWindow {
 public:
  static constexpr uint64_t kBytes = uint64_t{4} << 20;
  explicit BlockWindow(const OpenFile& file) : file_(file) {}
  // The bytes at `offset`, at most kBytes of them; they stay until the next call.
  const unsigned char* at(uint64_t offset, uint64_t bytes) {
    // No sum that could overflow: the offset may be what a damaged file says.
    if (offset < begin_ || bytes > filled_ || offset - begin_ > filled_ - bytes) fill(offset, bytes);
    return block_.get() + (offset - begin_);
  }

 private:
  void fill(uint64_t offset, uint64_t bytes);

  const OpenFile& file_;
  std::unique_ptr<unsigned char[]> block_;
  uint64_t begin_ = 0, filled_ = 0;
};

}  // namespace drivetrain
