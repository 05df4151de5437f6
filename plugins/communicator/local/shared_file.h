// Memory that other ranks of this host can map: one anonymous file (memfd) per rank.
//
// A peer opens it as /proc/<pid>/fd/<fd>, so no name exists that a killed run could leave behind, and threads of one
// process use it as processes do, but share one mapping. The file is large but sparse: a page costs memory once it was
// touched. Freed blocks stay resident for the next allocation, because fresh pages are slow. Ownership: whoever maps
// it; the pages go when the last mapping goes. Thread: any. Errors: Error(communication) with the system's reason;
// Error(out_of_memory) when the file is full.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace drivetrain::local {

// A shared mapping; unmapped with the object.
class Mapping {
 public:
  Mapping(int fd, size_t bytes);  // bytes from the start of `fd`, which stays the caller's
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  char* base() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  char* base_;
  size_t bytes_;
};

// An open file descriptor; closed with the object.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// This rank's file: the first kHeadBytes are the owner's (zeroed), the rest is handed out in whole pages.
class SharedFile {
 public:
  static constexpr size_t kHeadBytes = 4096;
  explicit SharedFile(size_t bytes);

  int fd() const { return fd_.get(); }
  char* base() const { return mapping_->base(); }
  size_t bytes() const { return mapping_->bytes(); }

  int64_t allocate(size_t bytes);  // offset from base; a fresh page is zero, a reused one is not
  void release(int64_t offset);
  // A block that `users` ranks share. Each of them lets go of it once, through its own mapping; when all have, the
  // next allocation finds it free.
  int64_t lend(size_t bytes, int64_t users);
  static void let_go(char* block);

 private:
  int64_t allocate_locked(size_t bytes);
  void release_locked(int64_t offset);
  void reclaim_lent();

  Descriptor fd_;
  std::shared_ptr<Mapping> mapping_;
  std::mutex mutex_;
  std::map<int64_t, int64_t> free_, used_;  // offset -> bytes
  std::vector<int64_t> lent_;
};

// All `bytes` of another rank's file, found through its process; in this process the mapping that already exists.
std::shared_ptr<Mapping> map_peer_file(pid_t pid, int fd, size_t bytes);

}  // namespace drivetrain::local
