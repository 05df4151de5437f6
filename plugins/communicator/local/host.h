// What the ranks of one host know of each other: their shared files, who is alive, and whether the run was aborted.
//
// One Host per rank, shared by its communicator and groups. Each rank announces its file in the store; peers map it
// when the first group needs it. The head of rank 0's file holds the reason of an abort for all ranks: the first one
// wins, so that everybody reports the cause and not its consequences. Thread: `abort`, `cause` and `lost` from any
// thread; the rest from the thread that makes groups. Errors: Error(communication) naming the rank that is lost or
// late; Error(config) if a rank runs on another host.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <drivetrain/error.h>
#include <drivetrain/services.h>

#include "shared_file.h"

namespace drivetrain::local {

struct LocalOptions {
  double timeout_s = 300;
  std::optional<int64_t> spin;  // pauses before sleeping; nothing: 2000 if every rank can have a core, else 0
};

// First bytes of each rank's file.
struct FileHead {
  std::atomic<uint32_t> closed;       // 1: the rank destroyed its communicator
  std::atomic<uint32_t> abort_state;  // of rank 0's file: 0 none, 1 being written, 2 cause is there
  char cause[2048];
};
static_assert(sizeof(FileHead) <= SharedFile::kHeadBytes);

// A process is its pid and start time: pids are used again.
struct Peer {
  int64_t rank = 0;
  pid_t pid = 0;
  uint64_t start = 0;
  std::shared_ptr<Mapping> file;
  FileHead& head() const { return *reinterpret_cast<FileHead*>(file->base()); }
  std::string text() const { return concat("rank ", rank, " (pid ", pid, ")"); }
};

class Host {
 public:
  Host(const Services& services, const LocalOptions& options);

  int64_t rank() const { return rank_; }
  double timeout_s() const { return options_.timeout_s; }
  int64_t spin() const { return spin_; }
  SharedFile& memory() { return memory_; }

  // Maps the file of `rank`, waiting until it is announced. `where` begins the error message.
  const Peer& connect(int64_t rank, const std::string& where);
  // The value of a key that `from` sets.
  std::string await(const std::string& key, const std::string& where, const std::string& from);
  void publish(const std::string& key, const std::string& value);

  void close() noexcept;  // peers that still wait for this rank see that it left
  void abort(const std::string& cause) noexcept;
  std::string cause() const;                 // empty while nothing was aborted
  std::string lost(const Peer& peer) const;  // "rank 1 (pid 4711) died", or empty
  // Aborts everybody with `cause` and throws it.
  [[noreturn]] void give_up(const std::string& where, const std::string& cause);
  void throw_if_aborted(const std::string& where) const;

 private:
  FileHead& own_head() { return *reinterpret_cast<FileHead*>(memory_.base()); }

  const int64_t rank_;
  const LocalOptions options_;
  const int64_t spin_;
  Store& store_;
  SharedFile memory_;
  std::string prefix_;
  std::map<int64_t, Peer> peers_;
  std::shared_ptr<Mapping> board_file_;
  std::atomic<FileHead*> board_{nullptr};  // rank 0's head once mapped; until then our own
};

}  // namespace drivetrain::local
