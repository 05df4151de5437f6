// One piece of memory that other ranks of this host can map: an anonymous file (memfd) of fixed size.
//
// A peer opens it as /proc/<pid>/fd/<fd>, so no name exists that a killed run could leave behind. The file is sparse: a
// page costs memory once it was touched. It is sealed against a change of size, so nobody can cut it short under a
// reader, and begins with a random token that only ranks of the same run are told, through the store. What a peer says
// of its file is checked before a byte is mapped: whose process, what kind of file, its seals, its size; then the
// token. Ownership: whoever maps it; the pages go when the last mapping goes. Thread: any. Errors: Error(out_of_memory)
// with the figure and the limit that stands in the way; Error(communication) for what is refused.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace drivetrain::toolkit::host_memory {

constexpr int64_t kPage = 4096;

struct Token {
  uint64_t high = 0, low = 0;
  bool operator==(const Token&) const = default;
  std::string text() const;  // for the store
};
Token random_token();

// A shared mapping; unmapped with the object.
class Mapping {
 public:
  Mapping(int fd, int64_t bytes);  // bytes from the start of `fd`, which stays the caller's
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  char* base() const { return base_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* base_;
  int64_t bytes_;
};

// An open file descriptor; closed with the object.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// A segment of this rank. Its first bytes are the token.
class Segment {
 public:
  Segment(int64_t bytes, const Token& token);

  int fd() const { return fd_.get(); }
  const std::shared_ptr<Mapping>& mapping() const { return mapping_; }

 private:
  Descriptor fd_;
  std::shared_ptr<Mapping> mapping_;
};

// A segment of another rank, as that rank describes it; in this process the mapping that already exists.
struct PeerSegment {
  pid_t pid = 0;
  int fd = -1;
  int64_t bytes = 0;
  Token token;
};
std::shared_ptr<Mapping> map_peer_segment(const PeerSegment& wanted);

// Equal for processes that can reach each other through /proc: same boot of the same kernel, same pid namespace.
std::string host_mark();

}  // namespace drivetrain::toolkit::host_memory
