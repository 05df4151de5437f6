#include "data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace drivetrain::megatron {
namespace {

Error unreadable(const std::string& path, int code) {
  const char* const remedy = code == EMFILE ? "\n   each prefix takes two open files: raise the limit (ulimit -n)" : "";
  return fail(code == ENOENT ? ErrorCode::config : ErrorCode::io, "dataset/megatron: ", path,
              " cannot be opened: ", std::strerror(code), remedy);
}

}  // namespace

DataFile::DataFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat found = {};
  if (descriptor_ < 0) throw unreadable(path, errno);
  const bool known = ::fstat(descriptor_, &found) == 0;
  if (!known || !S_ISREG(found.st_mode)) {
    const int code = errno;
    ::close(descriptor_);
    if (!known) throw unreadable(path, code);
    throw fail(ErrorCode::io, "dataset/megatron: ", path, " is not a regular file");
  }
  bytes_ = found.st_size;
  mtime_ns_ = int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec;
}

DataFile::~DataFile() { ::close(descriptor_); }

void DataFile::read(int64_t offset, void* to, int64_t bytes) const {
  auto* place = static_cast<char*>(to);
  while (bytes > 0) {
    const auto most = static_cast<size_t>(std::min<int64_t>(bytes, int64_t{1} << 30));
    const ssize_t got = ::pread(descriptor_, place, most, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw fail(ErrorCode::io, "dataset/megatron: ", path_, ": ", bytes, " bytes at byte ", offset,
                 " cannot be read: ", std::strerror(errno));
    if (got == 0)
      throw fail(ErrorCode::io, "dataset/megatron: ", path_, ": was cut short while it was in use: it had ", bytes_,
                 " bytes and ends at byte ", offset, " now\n   put the whole file back and resume");
    place += got, offset += got, bytes -= got;
  }
}

void DataFile::expect(int64_t offset, int64_t bytes) const {
  ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);
}

}  // namespace drivetrain::megatron
