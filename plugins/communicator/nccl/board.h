// What the ranks of a run tell each other beside the collectives, over the rendezvous store: who made which group, who
// left, why the run was aborted, and, when a call does not end, which call each rank stands in.
//
// Knows neither CUDA nor NCCL. Ownership, thread and errors: as AbortBoard. Error(communication) names the group and
// the ranks that did not arrive.
#pragma once

#include <drivetrain/toolkit/communicator/abort_board.h>
#include <drivetrain/toolkit/communicator/call.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace drivetrain::nccl {

// Where a rank stands in a group, as it tells the others when a call does not end.
struct CommStatus {
  int64_t reached = 0;          // collectives called so far
  int64_t open = 0;             // number of the oldest one that is not finished; 0: none, or a send or recv
  std::string call = {};        // its text; empty: no open call
  toolkit::Counts counts = {};  // its counts, where it has some
  int64_t replayed = 0;         // collectives that the device has begun so far in replays of recorded steps
  bool in_replay = false;       // the open call is one of a replay
};

// What stopped: the oldest call of `mine` in group `label`.
struct Stall {
  std::string label;
  std::vector<int64_t> ranks;
  CommStatus mine;
};

// Why `stall` does not end, from where its ranks stand (nothing: it did not answer), in the words of the error.
std::string explain(const Stall& stall, const std::vector<std::optional<CommStatus>>& statuses, double timeout_s);

class Board final : public toolkit::AbortBoard {
 public:
  Board(Store& store, int64_t rank, int64_t world_size, double timeout_s);

  // Says that this rank makes the group and waits until all its ranks do; the lowest one's `id` is returned to all.
  std::string meet(const std::vector<int64_t>& ranks, const std::string& label, const std::function<std::string()>& id);

  // The watchdog's side. `status_of` tells where this rank stands in a group.
  using StatusOf = std::function<CommStatus(const std::string& label)>;
  // True if the run was aborted: looks what others have written and answers them.
  bool look(const StatusOf& status_of);
  // Asks the group's ranks where they stand and raises what that explains.
  void report(const Stall& stall, const StatusOf& status_of);
  // A member of the group that closed its communicator before the call that `mine` waits in, as text; empty: none did.
  std::string left(const std::vector<int64_t>& ranks, const std::string& label, const CommStatus& mine);

  // How many collectives of the group this rank called, and how many its device has begun in replays; the group counts.
  using Counter = std::shared_ptr<std::atomic<int64_t>>;
  struct Counters {
    Counter reached = std::make_shared<std::atomic<int64_t>>(0), replayed = std::make_shared<std::atomic<int64_t>>(0);
  };
  Counters counters(const std::string& label);
  void close() noexcept override;

  // How many ranks have named this, the caller among them; and whether any has.
  int64_t count(const std::string& name) { return store().add(key(name), 1); }
  bool counted(const std::string& name) { return store().has(key(name)); }

  // Aborts the run for what this rank itself failed with: its later calls throw that again, not that they were ended.
  void raise_own(const std::string& cause, std::exception_ptr failure) noexcept;
  void throw_if_ended(const std::string& where) const;
  // Why the run was aborted, as far as the store still tells; empty: it was not, and all ranks are here or done.
  std::string lost() noexcept;

 private:
  bool wait_for(const std::string& name, double seconds);

  mutable std::mutex mutex_;
  std::exception_ptr own_failure_;
  std::string answered_;  // the question that was answered last
  std::map<std::string, Counters> counters_;
};

}  // namespace drivetrain::nccl
