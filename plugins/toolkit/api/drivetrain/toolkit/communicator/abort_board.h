// What the ranks of a run tell each other over the rendezvous store, outside of their calls: which ranks have reached a
// make_group, which have closed their communicator, and why the run was aborted. For communicators without memory that
// all ranks share.
//
// The first cause is kept, so that every rank reports the cause and not its consequences. Ownership: one per
// communicator; the store outlives it. Thread: any. Errors: Error(communication) with the cause; `raise` and `close`
// never throw.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include <drivetrain/store.h>

namespace drivetrain::toolkit {

class AbortBoard {
 public:
  // `plugin` ("communicator/mpi"): the beginning of keys and messages. `period_s`: seconds between two looks at the
  // store.
  AbortBoard(std::string plugin, Store& store, int64_t rank, double timeout_s, double period_s);
  virtual ~AbortBoard();

  int64_t rank() const { return rank_; }
  double timeout_s() const { return timeout_s_; }
  double period_s() const { return period_s_; }

  bool aborted() const { return aborted_; }
  std::string cause() const;  // as this rank knows it, without asking the store; empty: not aborted
  // `where`: the call that cannot continue.
  void throw_if_aborted(const std::string& where) const;
  // Aborts the run on all ranks with `cause`, unless it is aborted already. Returns the cause that is valid.
  std::string raise(const std::string& cause) noexcept;
  // Reads from the store whether another rank aborted the run, and returns it. Throws what the store throws.
  bool take_over();

  bool anyone_closed() { return store_.has(key("closed")); }
  // "rank 1 (pid 4711) closed its communicator"; empty: it did not close it, or `rank` is this rank.
  std::string closed(int64_t rank);
  virtual void close() noexcept;

 protected:
  // Called when this rank learns of an abort, once or more. `ours`: the cause is on this rank.
  virtual void on_abort(bool /*ours*/) noexcept {}

  // Aborts on this rank only, for example if the store does not answer.
  void adopt(const std::string& cause) noexcept;

  // For make_group. arrive: this rank has reached the group `label`. absent: those of `ranks` that have not.
  void arrive(const std::string& label);
  std::vector<int64_t> absent(const std::vector<int64_t>& ranks, const std::string& label);
  // "rank 1 did not reach WHERE within 30 s (rank 0 did)"
  std::string late(const std::vector<int64_t>& absent, const std::vector<int64_t>& ranks,
                   const std::string& where) const;

  Store& store() { return store_; }
  std::string key(const std::string& name) const { return prefix_ + name; }

  static constexpr double kValueS = 5;  // timeout for a value that another rank is writing

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
