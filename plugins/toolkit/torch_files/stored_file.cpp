#include <drivetrain/toolkit/torch_files/stored_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace drivetrain {
namespace {

constexpr int kMostOpen = 256;
std::atomic<int> open_files = 0;  // that stay open

struct OpenFile {
  explicit OpenFile(const std::string& path, ErrorCode if_absent)
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor >= 0 && ::fstat(descriptor, &found) == 0) return;
    const int code = errno;
    if (descriptor >= 0) ::close(descriptor);
    throw fail(code == ENOENT ? if_absent : ErrorCode::io, path, ": cannot open the file: ", std::strerror(code));
  }
  ~OpenFile() {
    if (descriptor >= 0) ::close(descriptor);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor;
  struct stat found = {};
};

}  // namespace

StoredFile::StoredFile(const std::string& path) : path_(path) {
  OpenFile file(path, ErrorCode::config);
  if (!S_ISREG(file.found.st_mode)) throw fail(ErrorCode::io, path, ": is no regular file");
  bytes_ = static_cast<uint64_t>(file.found.st_size);
  device_ = file.found.st_dev, inode_ = file.found.st_ino;
  if (++open_files <= kMostOpen)
    descriptor_ = std::exchange(file.descriptor, -1);
  else
    --open_files;
}

StoredFile::~StoredFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  --open_files;
}

void StoredFile::read(uint64_t offset, void* to, uint64_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset)
    throw fail(ErrorCode::checkpoint, path_, ": bytes ", offset, " to ", offset + bytes, " are wanted, the file has ",
               bytes_);
  std::optional<OpenFile> again;
  if (descriptor_ < 0) {
    again.emplace(path_, ErrorCode::io);
    if (again->found.st_dev != device_ || again->found.st_ino != inode_)
      throw fail(ErrorCode::io, path_, ": was replaced while it was read\n   begin again");
  }
  const int descriptor = again ? again->descriptor : descriptor_;
  char* place = static_cast<char*>(to);
  while (bytes > 0) {
    const size_t most = std::min<uint64_t>(bytes, uint64_t{1} << 30);
    const ssize_t got = ::pread(descriptor, place, most, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw fail(ErrorCode::io, path_, ": cannot read ", bytes, " bytes at ", offset, ": ",
                 got < 0 ? std::strerror(errno) : "the file was truncated meanwhile");
    place += got, offset += static_cast<uint64_t>(got), bytes -= static_cast<uint64_t>(got);
  }
}

}  // namespace drivetrain
