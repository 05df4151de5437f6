// The calls to the system by which files are written and read back, as an object: a test passes one of its own that
// fails, writes less than it was asked to, stops, or records what happened. The default does what the system does.
//
// Each call returns what the system's call returns and sets errno: -1 is a failure. Thread: any, if the object's class
// does not say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace drivetrain {

class FileCalls {
 public:
  virtual ~FileCalls();

  virtual int open(const std::string& path, int flags, unsigned mode);
  virtual int close(int descriptor);
  virtual int64_t pread(int descriptor, void* data, size_t bytes, uint64_t offset);
  virtual int64_t pwrite(int descriptor, const void* data, size_t bytes, uint64_t offset);
  // Whether reads and writes of an open file go past the page cache (O_DIRECT).
  virtual int set_direct(int descriptor, bool direct);
  virtual int reserve(int descriptor, uint64_t bytes);  // fallocate: the size becomes `bytes`
  // Tells the kernel to begin to write these bytes to the disk. A hint: nothing waits for it, a failure is not seen.
  virtual void start_writing(int descriptor, uint64_t offset, uint64_t bytes);
  virtual int fsync(int descriptor);
  virtual int make_folder(const std::string& path, unsigned mode);
  virtual int remove_folder(const std::string& path);  // rmdir: only an empty one
  virtual int remove_file(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  // Two names change places in one moment. EINVAL, ENOSYS or ENOTSUP where the file system cannot.
  virtual int exchange(const std::string& one, const std::string& other);
};

// The system's. It has no state.
FileCalls& system_file_calls();

}  // namespace drivetrain
