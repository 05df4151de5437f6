// What the ranks of a run tell each other beside their calls, over the rendezvous store: who makes which group, who
// closed its communicator, why the run was aborted. For communicators without memory that all ranks see.
//
// The first cause wins, so that every rank reports the cause and not its consequences. Ownership: one per communicator;
// the store outlives it. Thread: any. Errors: Error(communication) with the cause; `raise` and `close` never throw.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include <drivetrain/store.h>

namespace drivetrain::toolkit {

class AbortBoard {
 public:
  // `plugin` ("communicator/mpi") begins keys and messages. `period_s`: how often to ask for news.
  AbortBoard(std::string plugin, Store& store, int64_t rank, double timeout_s, double period_s);
  virtual ~AbortBoard();

  int64_t rank() const { return rank_; }
  double timeout_s() const { return timeout_s_; }
  double period_s() const { return period_s_; }

  bool aborted() const { return aborted_; }
  std::string cause() const;  // as far as this rank knows, without asking the store; empty: not aborted
  // `where` names the call that cannot go on.
  void throw_if_aborted(const std::string& where) const;
  // Makes `cause` the cause of all ranks unless there is one already. Returns the one that holds.
  std::string raise(const std::string& cause) noexcept;
  // Takes over what another rank raised. True if the run was aborted. Throws what the store throws.
  bool take_over();

  bool anyone_closed() { return store_.has(key("closed")); }
  // "rank 1 (pid 4711) closed its communicator"; empty: it did not, or is this one.
  std::string closed(int64_t rank);
  virtual void close() noexcept;

 protected:
  // Called once this rank knows of an abort, maybe more than once. `ours`: its cause began on this rank.
  virtual void on_abort(bool /*ours*/) noexcept {}

  // Stops this rank alone, as where the store is gone.
  void adopt(const std::string& cause) noexcept;

  // For make_group: says that this rank is there, and tells which of `ranks` are not yet.
  void arrive(const std::string& label);
  std::vector<int64_t> absent(const std::vector<int64_t>& ranks, const std::string& label);
  // "rank 1 did not reach WHERE within 30 s (rank 0 did)"
  std::string late(const std::vector<int64_t>& absent, const std::vector<int64_t>& ranks,
                   const std::string& where) const;

  Store& store() { return store_; }
  std::string key(const std::string& name) const { return prefix_ + name; }

  static constexpr double kValueS = 5;  // for a value that another rank is writing just now

 private:
  std::string here(const std::string& label, int64_t rank) const;

  const std::string plugin_;
  Store& store_;
  const int64_t rank_;
  const double timeout_s_, period_s_;
  std::string prefix_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string cause_;
};

}  // namespace drivetrain::toolkit
