// File calls for tests: counted, with one fault at a chosen call. Nothing waits for a disk.
#pragma once

#include <cerrno>
#include <exception>
#include <string>

#include <drivetrain/toolkit/files/file_calls.h>

namespace drivetrain::test {

enum class Fault {
  none,
  no_space,       // the call fails with ENOSPC
  io_error,       // with EIO
  dead_disk,      // with EIO, and so do all that follow
  half,           // a write takes half of its bytes; other calls work
  killed_before,  // the process is gone before the call
};

// Nothing that the program does after this has an effect.
struct Killed : std::exception {};

class TestCalls : public FileCalls {
 public:
  int calls = 0, fault_at = 0;  // of the call, from 1
  Fault fault = Fault::none;
  bool can_exchange = true, can_reserve = true, dead = false;
  bool lies_about_direct = false;  // says that writes go past the page cache, and refuses those that would

  int open(const std::string& path, int flags, unsigned mode) override {
    return fails() ? -1 : FileCalls::open(path, flags, mode);
  }
  int close(int descriptor) override {  // always closes, as the system does
    FileCalls::close(descriptor);
    return fails() ? -1 : 0;
  }
  int64_t pwrite(int descriptor, const void* data, size_t bytes, uint64_t offset) override {
    if (fails()) return -1;
    if (lies_about_direct && direct_) return errno = EINVAL, -1;
    const bool half = fault == Fault::half && calls == fault_at;
    return FileCalls::pwrite(descriptor, data, half ? (bytes + 1) / 2 : bytes, offset);
  }
  int set_direct(int descriptor, bool direct) override {
    direct_ = direct;
    return lies_about_direct ? 0 : FileCalls::set_direct(descriptor, direct);
  }
  int reserve(int descriptor, uint64_t bytes) override {
    if (can_reserve) return fails() ? -1 : FileCalls::reserve(descriptor, bytes);
    errno = EOPNOTSUPP;
    return -1;
  }
  void start_writing(int, uint64_t, uint64_t) override {}
  int fsync(int) override { return fails() ? -1 : 0; }
  int make_folder(const std::string& path, unsigned mode) override {
    return fails() ? -1 : FileCalls::make_folder(path, mode);
  }
  int remove_folder(const std::string& path) override { return fails() ? -1 : FileCalls::remove_folder(path); }
  int remove_file(const std::string& path) override { return fails() ? -1 : FileCalls::remove_file(path); }
  int rename(const std::string& from, const std::string& to) override {
    return fails() ? -1 : FileCalls::rename(from, to);
  }
  int exchange(const std::string& one, const std::string& other) override {
    if (fails()) return -1;
    if (can_exchange) return FileCalls::exchange(one, other);
    errno = EINVAL;
    return -1;
  }

 private:
  bool direct_ = false;  // of the file that was opened last; a save writes one after the other

  bool fails() {
    ++calls;
    if (!dead) {
      if (fault == Fault::none || fault == Fault::half || calls != fault_at) return false;
      dead = fault == Fault::dead_disk || fault == Fault::killed_before;
      if (fault == Fault::killed_before) throw Killed();
    }
    errno = fault == Fault::no_space ? ENOSPC : EIO;
    return true;
  }
};

}  // namespace drivetrain::test
