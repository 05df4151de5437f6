// A group of ranks of one host.
//
// A collective is posted - what is called and where its buffers lie - and returns. When all members have posted it,
// each compares, does its part without waiting for anybody, and says so; whichever call into the communicator comes
// next (of any of this rank's groups, see host.h) does it. A member's parts run in call order. How data moves follows
// from where the members' buffers lie: those in shared memory are read and written in place, others pass through
// windows, several per member in turn. A Work is over when its result is there and no peer uses this rank's buffers any
// more. Calls made without waiting may use each other's buffers: a call says which earlier one must be over everywhere
// first. The control block lies in the memory of the lowest member, windows in each member's own, rings for messages in
// the receiver's. Ownership: keeps Host (and so all mappings) alive; a Work keeps the group. Thread: one call at a
// time. Errors: as Group; every one but a refused argument aborts the run, since the members no longer stand at the
// same call.
#pragma once

#include <drivetrain/communicator.h>
#include <drivetrain/toolkit/communicator/call_check.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host.h"
#include "pairs.h"
#include "task.h"

namespace drivetrain::local {

// Of each of a rank's windows, and how many; see README.md.
constexpr int64_t kWindowBytes = 256 << 10;
constexpr int64_t kWindows = 4;

class LocalGroup final : public Group, public Driven, public std::enable_shared_from_this<LocalGroup> {
 public:
  LocalGroup(std::shared_ptr<Host> host, std::vector<int64_t> ranks, std::string label);
  ~LocalGroup() override;

  int64_t rank() const override { return me_; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  const std::string& label() const override { return label_; }

  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  at::Tensor allocate_once(int64_t numel, at::ScalarType dtype) override;
  WorkPtr all_reduce(at::Tensor t) override;
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override;
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override;
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override;
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override;
  WorkPtr broadcast(at::Tensor t, int64_t root) override;
  WorkPtr send(at::Tensor t, int64_t to) override;
  WorkPtr recv(at::Tensor t, int64_t from) override;
  void batch_begin() override;
  void batch_end() override;
  void barrier() override;

  bool advance() override;

 private:
  class TaskGoal;
  class TransferGoal;
  class TaskWork;
  class TransferWork;
  using Counter = std::atomic<int64_t> Member::*;

  // group_join.cpp
  void join();
  char* control_block(const std::string& where);
  void find_windows_and_rings();  // once all members have posted their first call
  // group.cpp: checks and posting
  toolkit::CallCheck check() const;
  TaskPtr task_of(CallKind kind, at::Tensor in, at::Tensor out, int64_t count, int64_t root = -1) const;
  WorkPtr post(const TaskPtr& task);
  WorkPtr post(CallKind kind, at::Tensor in, at::Tensor out, int64_t count, int64_t root = -1);
  bool post_task(const TaskPtr& task);
  void order_after_earlier(Task& task);
  int64_t last_user(const Use& use) const;
  WorkPtr transfer(bool sending, at::Tensor t, int64_t peer);

  // group_run.cpp: progress; with the host's mutex held
  void publish();
  bool run(Task& task);
  void match(Task& task) const;
  void map_what_is_new(Task& task);
  void compare(const Task& task) const;
  void give_up_different(const Task& task) const;
  void check_places(const Task& task) const;
  void refuse_shared_results(const Task& task) const;
  void forget_done();
  bool over(const Task& task) const;
  bool advance_transfers();
  bool may_move(const Transfer& transfer) const;

  // group_move.cpp: moving data
  void move(Task& task);
  char* address_of(const Place& place, int64_t bytes, int64_t member) const;
  void pull(Task& task);
  void push(Task& task);
  void reduce_everywhere(Task& task);
  bool run_windows(Task& task);
  bool stage(Task& task);
  bool add(Task& task);
  bool consume(Task& task);
  void consume_window(Task& task, int64_t begin, int64_t length);

  // group_counts.cpp: calls with counts
  void compare_counts(const Task& task) const;
  void match_counts(Task& task) const;
  void pull_counts(const Task& task) const;
  void stage_counts(const Task& task, int64_t begin, char* to) const;
  void consume_counts(const Task& task, int64_t begin) const;
  int64_t out_elements(const Task& task, int64_t member) const;

  char* window(int64_t member, int64_t number) const;
  const char* source_of(int64_t member) const {
    return static_cast<const char*>(sources_[static_cast<size_t>(member)]);
  }

  // group_wait.cpp: waiting and explaining
  void wait(const TaskPtr& task);
  void wait(const std::shared_ptr<Transfer>& transfer);
  Obstacle obstacle(const Task& task) const;
  Obstacle behind(Counter counter, int64_t least, const std::string& what, bool reached) const;
  Obstacle obstacle(const Transfer& transfer) const;
  std::string who(const std::vector<int64_t>& members) const;

  bool all(Counter counter, int64_t least) const;
  void say(Counter counter, int64_t value);  // to all members
  Member& member(int64_t index) const { return members_[index]; }
  Ring& ring(int64_t from, int64_t to) const;

  const std::shared_ptr<Host> host_;
  const std::vector<int64_t> ranks_;
  const std::string label_;
  const int64_t me_;
  std::vector<Peer> peers_;        // by index
  Member* members_ = nullptr;      // shared memory
  CountTable counts_;              // behind them
  std::vector<char*> windows_at_;  // each member's, as mapped here
  std::vector<Ring*> rings_at_;
  int64_t calls_ = 0;             // made
  int64_t posted_ = 0, run_ = 0;  // turn of the last call that was posted, that this rank has done its part of
  int64_t windows_ = 0;           // used by calls that are done
  std::deque<TaskPtr> queue_;     // made, this rank's part not done; FIFO
  std::vector<TaskPtr> lasting_;  // this rank's part done, buffers still in use by peers
  std::vector<std::shared_ptr<Transfer>> transfers_;  // open ones, in call order
  bool batching_ = false;
  std::vector<const void*> sources_;  // scratch of the call that runs
  std::vector<char*> targets_;
};

}  // namespace drivetrain::local
