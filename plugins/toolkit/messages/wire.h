// A group's channel of a carrier and what passes over it: messages of any length, and the packet that each rank sends
// every other one before a collective moves anything. A packet says what was called, so that ranks that disagree find
// out instead of hanging or mixing data, shows who has come, and carries small data along, so that a short collective
// is one step.
//
// Ownership: buffers are the caller's until the Requests are done. Thread: under the carrier's mutex. Errors: as
// requests.h.
#pragma once

#include <drivetrain/toolkit/communicator/call.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "requests.h"

namespace drivetrain::toolkit::messages {

enum Tag : int { kPackets = 1, kSlices, kResults, kHeads, kMessages, kParts, kRelayed };

// Which members of a group are on which host. A sum is made in parts that lie inside one host, so that each host adds
// its own before anything goes to another. Parts are nodes of the fixed tree (kernels/collective/tree_sum.h), all of
// one level, so the bits do not change: node i of level l is the sum over members i * 2^l to (i + 1) * 2^l - 1.
class Hosts {
 public:
  Hosts() = default;
  explicit Hosts(std::vector<int> of_members);

  int count() const { return static_cast<int>(members_.size()); }
  int of(int member) const { return of_[static_cast<size_t>(member)]; }
  const std::vector<int>& on(int host) const { return members_[static_cast<size_t>(host)]; }
  bool near(int a, int b) const { return of(a) == of(b); }
  bool any_near() const { return members_.size() < of_.size(); }
  // The member of `host` that carries what goes between that host and `member`: itself where it is there.
  int relay(int host, int member) const;
  // The highest level at which no node has members on two hosts.
  int level() const { return level_; }

 private:
  std::vector<int> of_, place_;  // of each member: its host, and how many of that host come before it
  std::vector<std::vector<int>> members_;
  int level_ = 0;
};

// Memory of sums under way, kept for the next one: pages that the system has just given are slow. Any thread.
class Scratch : public std::enable_shared_from_this<Scratch> {
 public:
  std::shared_ptr<char> take(size_t bytes);

 private:
  static constexpr size_t kMostKept = 64 << 20;
  struct Piece {
    std::unique_ptr<char[]> memory;
    size_t bytes;
  };
  void keep(Piece piece);

  std::mutex mutex_;
  std::vector<Piece> kept_;
  size_t kept_bytes_ = 0;
};

struct Wire {
  Carrier* carrier = nullptr;
  int64_t channel = 0;
  int me = 0, size = 1;
  int64_t piece_bytes = 0;  // of each other rank's data that one step of a sum receives
  Hosts hosts;
  std::shared_ptr<Scratch> scratch = nullptr;

  int64_t most_bytes() const;  // of one message of the carrier
  void send(Requests& requests, const void* data, int64_t bytes, int to, Tag tag) const;
  void recv(Requests& requests, void* data, int64_t bytes, int from, Tag tag) const;
  // Of one message; it lies where the transfer says or in `data`.
  TransferPtr look(Requests& requests, void* data, int64_t bytes, int from, Tag tag) const;
};

inline constexpr int64_t kInlineBytes = 1024 - static_cast<int64_t>(sizeof(Call));
struct Packet {
  Call call;
  char data[kInlineBytes];
};

// The packets of one collective.
class Packets {
 public:
  // What goes to one rank.
  struct Payload {
    const char* data = nullptr;
    int64_t count = 0;  // elements of the call's dtype
    bool exists() const { return data != nullptr; }
  };
  using PayloadFor = std::function<Payload(int index)>;
  // Sends every other rank `call`, with what there is for it where that is at most kInlineBytes. Of a call with counts
  // each rank is told its own.
  void post(const Wire& wire, const Call& call, const PayloadFor& payload_for);
  Requests& requests() { return requests_; }
  // After all arrived. Throws Error(communication) if another rank called something else.
  // `expected`: of a call with counts, elements from each rank.
  void compare(const Wire& wire, const Call& call, const std::vector<int64_t>& expected,
               const std::vector<int64_t>& ranks, const std::string& label) const;
  const char* data(int index) const { return from_[index].data; }

 private:
  Requests requests_;
  std::unique_ptr<Packet[]> to_, from_;
};

}  // namespace drivetrain::toolkit::messages
