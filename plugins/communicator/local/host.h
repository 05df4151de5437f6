// What the ranks of one host know of each other: their shared files, who is alive, and whether the run was aborted. And
// what makes a rank's calls move: all its groups are driven together, so waiting for one call drives all others.
//
// One Host per rank, shared by its communicator and groups. Each rank announces its first segment of shared memory in
// the store; peers map it when the first group needs it, and further segments when a call uses them. What a peer
// announces, places included, is checked before it is used. The head of rank 0's memory holds the reason of an abort:
// the first one wins, so that everybody reports the cause and not its consequences. Waiting spins, then sleeps on the
// rank's bell in slices, between which it looks for an abort and for members that are gone.
// Thread: `make_group`s one at a time, the rest from any;
// `mutex` guards the state of all groups and is not held while sleeping. Errors:
// Error(communication) naming the rank that is lost or late; Error(config) if a rank runs on another host.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/host_memory/shared_memory.h>

#include "member.h"
#include "wait.h"

namespace drivetrain::local {

struct LocalOptions {
  double timeout_s = 300;
  std::optional<int64_t> spin;  // pauses before sleeping; nothing: 2000 if every rank can have a core, else 0
  bool share = true;
};

// First bytes of each rank's memory.
struct FileHead {
  Token token;
  std::atomic<uint32_t> closed;       // 1: the rank destroyed its communicator
  std::atomic<uint32_t> abort_state;  // of rank 0's: 0 none, 1 being written, 2 cause is there
  Bell bell;
  char cause[2048];
  SegmentList segments;
};
static_assert(sizeof(FileHead) <= SharedMemory::kHeadBytes);

// A process is its pid and start time: pids are used again.
struct Peer {
  int64_t rank = 0;
  pid_t pid = 0;
  uint64_t start = 0;
  Token token = {};
  std::shared_ptr<Mapping> file = {};  // its first segment
  FileHead& head() const { return *reinterpret_cast<FileHead*>(file->base()); }
  std::string text() const { return concat("rank ", rank, " (pid ", pid, ")"); }
};

// What keeps a rank waiting: "rank 1 did not reach barrier #2 of group "dp"", within some seconds, "(rank 0 did)".
struct Obstacle {
  std::vector<Peer> absent;
  std::string what, note;
};

// Something to wait for. Both are called with the host's mutex held.
class Goal {
 public:
  virtual bool reached() = 0;
  virtual Obstacle obstacle() = 0;
  virtual std::string where() const = 0;  // begins error messages
  virtual void show(bool waiting) = 0;    // tells the peers' messages where this rank is

 protected:
  ~Goal() = default;
};

// Calls that want to be driven.
class Driven {
 public:
  virtual bool advance() = 0;  // never waits; true if anything moved

 protected:
  ~Driven() = default;
};

class Host {
 public:
  Host(const Services& services, const LocalOptions& options);

  int64_t rank() const { return rank_; }
  double timeout_s() const { return options_.timeout_s; }
  bool share() const { return options_.share; }
  int64_t spin() const { return spin_; }  // pauses before sleeping
  SharedMemory& memory() { return memory_; }
  std::mutex& mutex() { return mutex_; }

  // Maps the first segment of `rank`, waiting until it is announced. `where` begins the error message; `members`: ranks
  // that must not leave meanwhile.
  const Peer& connect(int64_t rank, const std::string& where, const std::vector<int64_t>& members);
  // The value of a key that `from` sets.
  std::string await(const std::string& key, const std::string& where, const std::string& from,
                    const std::vector<int64_t>& members);
  void publish(const std::string& key, const std::string& value);

  Place place_of(const void* address) const { return book_.place_of(address); }
  // `bytes` from that place, which rank `said_by` named; maps what is missing. Refuses what is no shared memory.
  char* address_of(const Place& place, int64_t bytes, int64_t said_by) {
    char* const known = book_.find(place, bytes);
    return known != nullptr ? known : map_place(place, bytes, said_by);
  }

  void add(Driven& group);
  void remove(Driven& group) noexcept;
  // Moves what can be moved, of all groups. With the mutex held. `sleepers`: of this rank's bell, that know of it.
  bool advance(uint32_t sleepers = 0);
  void wait(Goal& goal);

  void close() noexcept;  // peers that still wait for this rank see that it left
  void abort(const std::string& cause) noexcept;
  std::string cause() const;                                  // empty while nothing was aborted
  std::string lost(const Peer& peer) const;                   // "rank 1 (pid 4711) died", or empty
  bool is_stopped(const Peer& peer) const;                    // by a signal
  std::string stopped(const std::vector<Peer>& peers) const;  // "; rank 1 (pid 4711) is stopped by a signal", or empty
  // Aborts everybody with `cause` and throws it.
  [[noreturn]] void give_up(const std::string& where, const std::string& cause);
  template <class Where>
  void throw_if_aborted(const Where& where) const requires std::is_invocable_v<Where> {
    if (board_.load()->abort_state.load() != 0) throw_if_aborted(where());
  }
  void throw_if_aborted(const std::string& where) const;

 private:
  FileHead& own_head() const { return *reinterpret_cast<FileHead*>(memory_.head()); }
  const Peer& meet(int64_t rank, const std::string& announced, const std::string& where);
  const Peer& owner_of(const Place& place, int64_t said_by, const std::string& where);
  char* map_place(const Place& place, int64_t bytes, int64_t said_by);
  void map_segment(const Peer& peer, const Place& place);
  // What that peer describes; gives up if it died or if what it says is refused.
  std::shared_ptr<Mapping> mapped(const Peer& peer, const PeerSegment& segment, const std::string& where);
  bool reached(Goal& goal, uint32_t sleepers = 0, bool* moved = nullptr);
  void look(Goal& goal, double waited_s);
  void note_lost(const std::string& where, const std::vector<int64_t>& members);
  void count_cores(const std::set<int>& cores);

  const int64_t rank_;
  const LocalOptions options_;
  const int64_t world_size_;
  std::set<int> cores_;        // that this rank and those in peers_ may run on
  const bool may_spin_;        // the control group has time for all ranks at once
  std::atomic<int64_t> spin_;  // may grow when all ranks are known
  Store& store_;
  AddressBook book_;
  SharedMemory memory_;
  std::string prefix_;
  std::mutex peers_mutex_;  // taken last, also while `mutex_` is held
  std::map<int64_t, Peer> peers_;
  std::vector<std::atomic<const Peer*>> by_rank_;  // those in peers_
  std::mutex segments_mutex_;                      // held while further segments of peers are mapped
  std::shared_ptr<Mapping> board_file_;
  std::atomic<FileHead*> board_{nullptr};  // rank 0's head once mapped; until then our own
  std::mutex mutex_;
  std::vector<Driven*> groups_;
};

}  // namespace drivetrain::local
