// What the ranks of a run tell each other beside the collectives, over the rendezvous store: who made which group, who
// left, why the run was aborted, and, when a call does not end, which call each rank stands in.
//
// The first cause wins, so that everybody reports the cause and not its consequences. Knows neither CUDA nor NCCL.
// Ownership: one per communicator; the store outlives it. Thread: any. Errors: Error(communication) naming the group
// and the ranks that did not arrive; `raise` and `close` never throw.
#pragma once

#include <drivetrain/services.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace drivetrain::nccl {

// "rank 1", "ranks 0, 2 and 3"
std::string rank_list(const std::vector<int64_t>& ranks);

// Where a rank stands in a group, as it tells the others when a call does not end.
struct Standing {
  int64_t reached = 0;  // collectives called so far
  int64_t open = 0;     // number of the oldest one that is not finished; 0: none, or a send or recv
  std::string call;     // its text; empty: no open call
};

// What stopped: the oldest call of `mine` in group `label`.
struct Stall {
  std::string label;
  std::vector<int64_t> ranks;
  Standing mine;
};

// Why `stall` does not end, from where its ranks stand (nothing: it did not answer), in the words of the error.
std::string explain(const Stall& stall, const std::vector<std::optional<Standing>>& standings, double timeout_s);

class Board {
 public:
  Board(Store& store, int64_t rank, int64_t world_size, double timeout_s);

  int64_t rank() const { return rank_; }
  double timeout_s() const { return timeout_s_; }
  // How often to `look`: all ranks ask the one store.
  double period_s() const { return period_s_; }

  // Says that this rank makes the group and waits until all its ranks do; the lowest one's `id` is returned to all.
  std::string meet(const std::vector<int64_t>& ranks, const std::string& label, const std::function<std::string()>& id);

  bool aborted() const { return aborted_; }
  std::string cause() const;  // empty while nothing was aborted; what this rank knows, without asking the store
  void throw_if_aborted(const std::string& where) const;
  // Makes `cause` the cause of all ranks unless there is one; returns the one that holds.
  std::string raise(const std::string& cause) noexcept;

  // The watchdog's side. `standing_of` tells where this rank stands in a group.
  using StandingOf = std::function<Standing(const std::string& label)>;
  // True if the run was aborted: looks what others have written and answers them.
  bool look(const StandingOf& standing_of);
  // Asks the group's ranks where they stand and raises what that explains.
  void report(const Stall& stall, const StandingOf& standing_of);
  // A member of the group that closed its communicator before collective `number`, as text; empty: none did.
  std::string left(const std::vector<int64_t>& ranks, const std::string& label, int64_t number);

  // How many collectives of the group this rank called; the group counts.
  using Counter = std::shared_ptr<std::atomic<int64_t>>;
  Counter counter(const std::string& label);
  void close() noexcept;

 private:
  std::string key(const std::string& name) const { return prefix_ + name; }
  bool wait_for(const std::string& name, double seconds);
  void adopt(const std::string& cause);

  Store& store_;
  const int64_t rank_;
  const double timeout_s_, period_s_;
  std::string prefix_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string cause_;
  std::string answered_;  // the question that was answered last
  std::map<std::string, Counter> reached_;
};

}  // namespace drivetrain::nccl
