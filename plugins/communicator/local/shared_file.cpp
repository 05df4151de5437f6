#include "shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include <drivetrain/error.h>

namespace drivetrain::local {
namespace {

constexpr int64_t kPage = 4096;

// Files of ranks that are threads of this process. The key holds the pid because a fork inherits the table.
struct OwnFiles {
  std::mutex mutex;
  std::map<std::pair<pid_t, int>, std::weak_ptr<Mapping>> mappings;
};
OwnFiles& own_files() {
  static OwnFiles files;
  return files;
}

std::atomic<int32_t>& users_of(char* block) { return *reinterpret_cast<std::atomic<int32_t>*>(block - kPage); }

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

SharedFile::SharedFile(size_t bytes) : fd_(create_file(bytes)), mapping_(std::make_shared<Mapping>(fd_.get(), bytes)) {
  free_[kHeadBytes] = static_cast<int64_t>(bytes - kHeadBytes);
  OwnFiles& files = own_files();
  const std::lock_guard lock(files.mutex);
  std::erase_if(files.mappings, [](const auto& entry) { return entry.second.expired(); });
  files.mappings[{getpid(), fd()}] = mapping_;
}

int64_t SharedFile::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  reclaim_lent();
  return allocate_locked(bytes);
}

int64_t SharedFile::lend(size_t bytes, int64_t users) {
  const std::lock_guard lock(mutex_);
  reclaim_lent();
  const int64_t offset = allocate_locked(bytes + kPage);
  users_of(base() + offset + kPage).store(static_cast<int32_t>(users));
  lent_.push_back(offset);
  return offset + kPage;
}

void SharedFile::let_go(char* block) { users_of(block).fetch_sub(1); }

void SharedFile::reclaim_lent() {
  std::erase_if(lent_, [&](int64_t offset) {
    if (users_of(base() + offset + kPage).load() != 0) return false;
    release_locked(offset);
    return true;
  });
}

int64_t SharedFile::allocate_locked(size_t bytes) {
  const int64_t wanted = (static_cast<int64_t>(bytes == 0 ? 1 : bytes) + kPage - 1) / kPage * kPage;
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const auto [offset, size] = *block;
    if (size < wanted) continue;
    free_.erase(block);
    if (size > wanted) free_[offset + wanted] = size - wanted;
    used_[offset] = wanted;
    return offset;
  }
  int64_t left = 0;
  for (const auto& [offset, size] : free_) left += size;
  throw fail(ErrorCode::out_of_memory, "communicator/local: no block of ", wanted,
             " bytes left in this rank's shared memory, which may grow to ", this->bytes(),
             " bytes (twice the memory of this host) and has ", left,
             " free: let the model, its buckets or the batch take less, or run fewer ranks on this host");
}

void SharedFile::release(int64_t offset) {
  const std::lock_guard lock(mutex_);
  release_locked(offset);
}

void SharedFile::release_locked(int64_t offset) {
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

std::shared_ptr<Mapping> map_peer_file(pid_t pid, int fd, size_t bytes) {
  if (pid == getpid()) {
    OwnFiles& files = own_files();
    const std::lock_guard lock(files.mutex);
    const auto known = files.mappings.find({pid, fd});
    if (known != files.mappings.end())
      if (auto mapping = known->second.lock()) return mapping;
  }
  const std::string path = concat("/proc/", pid, "/fd/", fd);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0)
    throw fail(ErrorCode::communication, "communicator/local: cannot open the shared memory of process ", pid, " (",
               path, "): ", strerror(errno), "; all ranks must run on one host, as one user and in one pid namespace");
  return std::make_shared<Mapping>(Descriptor(opened).get(), bytes);
}

}  // namespace drivetrain::local
