#include <drivetrain/toolkit/torch_files/input_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace drivetrain {

InputFile::InputFile(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat found = {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &found) != 0) {
    const int code = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    throw fail(code == ENOENT ? ErrorCode::config : ErrorCode::io, path,
               ": cannot open the file: ", std::strerror(code));
  }
  if (!S_ISREG(found.st_mode)) {
    ::close(descriptor_);
    throw fail(ErrorCode::io, path, ": is no regular file");
  }
  bytes_ = static_cast<uint64_t>(found.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(uint64_t offset, void* to, uint64_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset)
    throw fail(ErrorCode::checkpoint, path_, ": bytes ", offset, " to ", offset + bytes, " are wanted, the file has ",
               bytes_);
  char* place = static_cast<char*>(to);
  while (bytes > 0) {
    const size_t most = std::min<uint64_t>(bytes, uint64_t{1} << 30);
    const ssize_t got = ::pread(descriptor_, place, most, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw fail(ErrorCode::io, path_, ": cannot read ", bytes, " bytes at ", offset, ": ",
                 got < 0 ? std::strerror(errno) : "the file was truncated meanwhile");
    place += got, offset += static_cast<uint64_t>(got), bytes -= static_cast<uint64_t>(got);
  }
}

}  // namespace drivetrain
