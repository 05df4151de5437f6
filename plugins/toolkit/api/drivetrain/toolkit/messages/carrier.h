// How messages go from rank to rank without waiting: what a communicator has to write for MessageCommunicator to make
// groups of it.
//
// A message goes from one member of a group to another, with a tag. Messages with the same channel, ends and tag are
// matched in the order in which they were begun. Either side may begin first. Memory is the caller's until the transfer
// is done. Ownership: one carrier per communicator. Thread: any, one at a time: all calls but `pause` and `mutex` are
// made with `mutex()` held, unless they say otherwise. Errors: Error(communication).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace drivetrain::toolkit {

// One message under way.
class Transfer {
 public:
  virtual ~Transfer();
  virtual bool done() = 0;
  // Of a `look` that is done: where the message lies as long as this object lives, if it did not come into the memory
  // that was given; else null.
  virtual const char* at() const { return nullptr; }
};
using TransferPtr = std::shared_ptr<Transfer>;

// A group that is being made. `id`: a number that only this group of the run has.
struct Members {
  std::vector<int64_t> ranks;
  std::string label;
  int64_t me = 0;  // index of this rank
  int64_t id = 0;
  std::string key;         // where the members may leave each other words in the store: keys that begin so are theirs
  std::vector<int> hosts;  // of each member; equal numbers: processes of one host and one user that see each other
};

class Carrier {
 public:
  virtual ~Carrier();

  // Called first in every make_group, without the mutex.
  virtual void start() {}
  // Makes the channel of a group once all its members have come; returns its number. Called without the mutex.
  // `meanwhile` moves what other groups have under way and throws if the run was aborted: a call that waits for other
  // ranks calls it again and again. A throw aborts the run on all ranks.
  virtual int64_t open(const Members& members, const std::function<void()>& meanwhile) = 0;
  // This rank has dropped the group. Its messages are done, unless the run was aborted.
  virtual void close(int64_t /*channel*/) noexcept {}

  // `to`, `from`: indices in the group, other than this rank's. A message may be shorter than `bytes` of its receive.
  virtual TransferPtr send(int64_t channel, int to, int tag, const void* data, int64_t bytes) = 0;
  virtual TransferPtr recv(int64_t channel, int from, int tag, void* data, int64_t bytes) = 0;
  // As recv, but the message may stay where it lies: see Transfer::at. Its sender waits until the transfer is dropped.
  virtual TransferPtr look(int64_t channel, int from, int tag, void* data, int64_t bytes) {
    return recv(channel, from, tag, data, bytes);
  }
  virtual int64_t most_bytes() const = 0;  // of one message; longer ones are cut
  // Memory out of which messages to ranks of the same host go without a copy; null: there is none such. Any thread,
  // without the mutex.
  virtual std::shared_ptr<char> allocate(int64_t /*bytes*/) { return nullptr; }

  // Moves what can be moved without waiting.
  virtual void advance() {}
  // Transfers were begun or dropped since `advance`; the next call may be long in coming.
  virtual void flush() {}
  // Sleeps for a short time, less where it is woken by what arrives. `times`: how often already since something moved.
  virtual void pause(int64_t times);
  virtual bool wakes() const { return false; }  // whether what arrives ends `pause`
  // Why nothing more comes from that rank (global) or goes there: "the connection to rank 1 was lost: ..."; empty: it
  // is not known to be lost.
  virtual std::string lost(int64_t /*rank*/) { return ""; }
  // The run was aborted. `ours`: the cause is on this rank. Any thread, without the mutex.
  virtual void aborted(bool /*ours*/) noexcept {}

  virtual std::mutex& mutex() = 0;
};

}  // namespace drivetrain::toolkit
