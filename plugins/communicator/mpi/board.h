// What the ranks of a run tell each other beside the messages, over the rendezvous store: who makes which group, who
// left, why the run was aborted. MPI itself has no word for a rank that gives up.
//
// The first cause wins, so that everybody reports the cause and not its consequences. Ownership: one per communicator;
// the store outlives it. Thread: any. Errors: Error(communication) naming the group and the ranks that did not arrive;
// `raise` and `close` never throw.
#pragma once

#include <drivetrain/services.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace drivetrain::mpi {

// "rank 1", "ranks 0, 2 and 3"
std::string rank_list(const std::vector<int64_t>& ranks);

class Board {
 public:
  Board(Store& store, int64_t rank, int64_t world_size, double timeout_s);

  int64_t rank() const { return rank_; }
  double timeout_s() const { return timeout_s_; }
  // How often to `look`: all ranks ask the one store.
  double period_s() const { return period_s_; }

  // Says that this rank makes the group and waits until all its ranks do. Throws on all of them or on none.
  // `meanwhile` is called again and again: another rank may have to end a call before it comes. True: something moved.
  void meet(const std::vector<int64_t>& ranks, const std::string& label, const std::function<bool()>& meanwhile);

  bool aborted() const { return aborted_; }
  void throw_if_aborted(const std::string& where) const;
  // Makes `cause` the cause of all ranks unless there is one.
  void raise(const std::string& cause) noexcept;
  // Takes over what others raised. A store that is gone is a cause, too.
  void look() noexcept;
  bool anyone_left() { return store_.has(key("closed")); }
  // The text for a rank that closed its communicator; empty: it did not.
  std::string left(int64_t rank);

  void close() noexcept;

 private:
  void decide(const std::string& label, bool go);
  std::string key(const std::string& name) const { return prefix_ + name; }
  std::string cause() const;
  void adopt(const std::string& cause);

  Store& store_;
  const int64_t rank_;
  const double timeout_s_, period_s_;
  std::string prefix_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string cause_;
};
using BoardPtr = std::shared_ptr<Board>;

}  // namespace drivetrain::mpi
