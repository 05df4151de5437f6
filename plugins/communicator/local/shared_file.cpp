#include "shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <drivetrain/error.h>

namespace drivetrain::local {
namespace {

constexpr int64_t kPage = 4096;

int create_file(size_t bytes) {
  const int fd = memfd_create("drivetrain-communicator", MFD_CLOEXEC);
  if (fd < 0)
    throw fail(ErrorCode::communication, "communicator/local: cannot create shared memory: ", strerror(errno));
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int reason = errno;
    close(fd);
    throw fail(ErrorCode::communication, "communicator/local: cannot size shared memory to ", bytes,
               " bytes: ", strerror(reason),
               reason == EFBIG ? " (the file size is limited: raise it with `ulimit -f unlimited`)" : "");
  }
  return fd;
}

}  // namespace

Mapping::Mapping(int fd, size_t bytes) : bytes_(bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (address == MAP_FAILED)
    throw fail(ErrorCode::communication, "communicator/local: cannot map ", bytes,
               " bytes of shared memory: ", strerror(errno), " (is the address space limited, `ulimit -v`?)");
  base_ = static_cast<char*>(address);
  madvise(address, bytes, MADV_DONTDUMP);
}

Mapping::~Mapping() { munmap(base_, bytes_); }

Descriptor::~Descriptor() { close(fd_); }

SharedFile::SharedFile(size_t bytes) : fd_(create_file(bytes)), mapping_(fd_.get(), bytes) {
  free_[kHeadBytes] = static_cast<int64_t>(bytes - kHeadBytes);
}

int64_t SharedFile::allocate(size_t bytes) {
  const int64_t wanted = (static_cast<int64_t>(bytes == 0 ? 1 : bytes) + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const auto [offset, size] = *block;
    if (size < wanted) continue;
    free_.erase(block);
    if (size > wanted) free_[offset + wanted] = size - wanted;
    used_[offset] = wanted;
    return offset;
  }
  throw fail(ErrorCode::out_of_memory, "communicator/local: no ", wanted, " bytes left in a shared file of ",
             mapping_.bytes(), " bytes");
}

void SharedFile::release(int64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto block = used_.find(offset);
  if (block == used_.end()) return;
  int64_t size = block->second;
  used_.erase(block);
  auto next = free_.upper_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_[offset] = size;
}

int64_t SharedFile::offset_of(const void* address) const {
  const char* at = static_cast<const char*>(address);
  return at >= base() && at < base() + bytes() ? at - base() : -1;
}

int open_peer_file(pid_t pid, int fd) {
  const std::string path = concat("/proc/", pid, "/fd/", fd);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0)
    throw fail(ErrorCode::communication, "communicator/local: cannot open the shared memory of process ", pid, " (",
               path, "): ", strerror(errno), "; all ranks must run on one host, as one user and in one pid namespace");
  return opened;
}

}  // namespace drivetrain::local
