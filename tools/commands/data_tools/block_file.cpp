#include "data_tools/block_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>

namespace drivetrain {

void read_exactly(int descriptor, const std::string& path, uint64_t offset, void* data, uint64_t bytes,
                  uint64_t whole) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = offset + done;
    const ssize_t got = pread(descriptor, static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw file_error(path, concat("read it at byte ", at), errno);
    if (got == 0)
      throw fail(ErrorCode::io, path, ": has no byte ", at, "; it had ", whole,
                 " bytes before: it was cut while it was in use");
    done += static_cast<uint64_t>(got);
  }
}

OpenFile::OpenFile(const std::string& path) : path_(path) {
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is not waited for
  struct stat facts = {};
  if (descriptor_ < 0) throw file_error(path, "open it for reading", errno);
  if (fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(descriptor_);
    throw fail(ErrorCode::io, path, ": is no file");
  }
  size_ = static_cast<uint64_t>(facts.st_size);
}

OpenFile::~OpenFile() { close(descriptor_); }

void OpenFile::read(uint64_t offset, void* data, uint64_t bytes) const {
  read_exactly(descriptor_, path_, offset, data, bytes, size_);
}

void BlockWindow::fill(uint64_t offset, uint64_t bytes) {
  const uint64_t left = file_.size() - std::min(offset, file_.size());
  const uint64_t wanted = std::max(bytes, std::min(kBytes, left));  // past the end: the read says so
  if (!block_) block_ = std::make_unique_for_overwrite<unsigned char[]>(kBytes);
  filled_ = 0;  // nothing is kept if the read fails
  file_.read(offset, block_.get(), wanted);
  begin_ = offset, filled_ = wanted;
}

}  // namespace drivetrain
