// What the launcher and the agent of a host say to each other: "TYPE RANK SIZE\n" and SIZE bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/outcome.h"
#include "launch/rank_process.h"

namespace drivetrain::program {

// Goes before all that an agent says: what a shell's start files print stands before it.
constexpr const char* kAgentBegins = "\1drivetrain-agent\n";
constexpr const char* kAgentProtocol = "6";

struct Message {
  enum Type : char {
    // of the agent
    hello = 'H',   // protocol, release, address of this host that the launcher reached
    ready = 'R',   // done what was asked; after `prepare` on rank 0's host its address and port
    refuse = 'X',  // exit code, text: cannot be done; after `start`: some rank could not be started
    out = 'o',     // of `rank`
    err = 'e',
    say = 'S',
    stops = 'z',   // its ranks that are left get SIGTERM: what the others said is not kept back any longer
    end = 'D',     // of `rank`, on its way to the launcher and from there to the other agents
    bye = 'B',     // every process of the ranks is gone
    alive = 'a',   // each second
    flight = 'f',  // the flight record of `rank`, as its bytes are; of the launcher: those of all ranks are wanted
    points = 'p',  // what rank 0 writes of where the run would go on from
    // of the launcher
    prepare = 'P',
    probe = 'C',   // address and port to try
    config = 'F',  // its text, for ranks that find it under the number `rank`
    start = 'G',
    signal = 'K',  // `rank` is its number
    pause = 'W',   // nobody takes what ranks write: they wait with it; `rank` 0: they go on
    // of `drivetrain doctor --hostfile`; answered by `ready`
    clock = 'T',    // what time is it there, in nanoseconds since 1970
    listen = 'L',   // an address or "", and those of the other hosts; the answer: its own towards them, and a port
    reach = 'N',    // addresses and ports to try; the answer: what is wrong with each, and the seconds that it took
    examine = 'E',  // an ExamineOrder; the answer: exit code, output, errors
  };
  char type = alive;
  int rank = 0;
  std::string text = {};
};

std::string encoded(const Message& message);

// Takes a stream apart.
class MessageReader {
 public:
  // `after_mark`: drops what stands before kAgentBegins.
  explicit MessageReader(bool after_mark) : begun_(!after_mark) {}
  void take(const std::string& bytes) { unread_ += bytes; }
  // Throws std::runtime_error for what is no message.
  std::optional<Message> next();
  const std::string& before_mark() const { return before_; }  // up to the mark

 private:
  bool begun_;
  size_t done_ = 0;  // of unread_
  std::string unread_, before_;
};

// Texts without zero bytes as one, and back.
std::string packed(const std::vector<std::string>& fields);
std::vector<std::string> unpacked(const std::string& text);

Message message_of(const RankEnd& end);
RankEnd rank_end_of(const Message& message);

// Messages on their way to a pipe whose reader may be slow.
class Outbox {
 public:
  Outbox() = default;
  explicit Outbox(Descriptor to);  // made not to block
  void put(const Message& message);
  void put_bytes(const std::string& bytes);
  void flush();  // as much as the pipe takes
  int fd() const { return to_.get(); }
  bool is_empty() const { return waiting_.size() == done_; }
  size_t size() const { return waiting_.size() - done_; }
  void close() { to_.close(), waiting_.clear(), done_ = 0; }

 private:
  Descriptor to_;
  std::string waiting_;
  size_t done_ = 0;
};

// What is there to read now; false: the other end is closed.
bool read_available(int fd, std::string& bytes);

}  // namespace drivetrain::program
