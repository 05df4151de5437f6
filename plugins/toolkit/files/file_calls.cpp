#include <drivetrain/toolkit/files/file_calls.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

namespace drivetrain {

FileCalls::~FileCalls() = default;

int FileCalls::open(const std::string& path, int flags, unsigned mode) { return ::open(path.c_str(), flags, mode); }

int FileCalls::close(int descriptor) { return ::close(descriptor); }

int64_t FileCalls::pread(int descriptor, void* data, size_t bytes, uint64_t offset) {
  return ::pread(descriptor, data, bytes, static_cast<off_t>(offset));
}

int64_t FileCalls::pwrite(int descriptor, const void* data, size_t bytes, uint64_t offset) {
  return ::pwrite(descriptor, data, bytes, static_cast<off_t>(offset));
}

int FileCalls::set_direct(int descriptor, bool direct) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags < 0 ? -1 : ::fcntl(descriptor, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
}

int FileCalls::reserve(int descriptor, uint64_t bytes) {
  return ::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes));
}

void FileCalls::start_writing(int descriptor, uint64_t offset, uint64_t bytes) {
  ::sync_file_range(descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

int FileCalls::fsync(int descriptor) { return ::fsync(descriptor); }

int FileCalls::make_folder(const std::string& path, unsigned mode) { return ::mkdir(path.c_str(), mode); }

int FileCalls::remove_folder(const std::string& path) { return ::rmdir(path.c_str()); }

int FileCalls::remove_file(const std::string& path) { return ::unlink(path.c_str()); }

int FileCalls::rename(const std::string& from, const std::string& to) { return ::rename(from.c_str(), to.c_str()); }

int FileCalls::exchange(const std::string& one, const std::string& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
}

FileCalls& system_file_calls() {
  static FileCalls calls;
  return calls;
}

}  // namespace drivetrain
