// A group of ranks of one host.
//
// Every call completes before it returns; `Work::wait` only checks. A collective posts what it calls, meets the others
// in a barrier, compares, and moves data: large buffers that all members allocated from the group are read where they
// lie, others pass through windows of 1 MB in shared memory, two per rank in turn, so that one barrier per window is
// enough. The control block lies in the file of the lowest member, windows in each member's own, rings for messages in
// the receiver's. Waiting spins briefly, then sleeps in slices of 50 ms, between which it looks for an abort and for
// members that are gone. Ownership: keeps Host (and so all mappings) alive. Thread: one call at a time. Errors: as
// Group; every one of them aborts the run, since after it the members no longer stand at the same call.
#pragma once

#include <drivetrain/communicator.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host.h"
#include "pairs.h"
#include "wait.h"

namespace drivetrain::local {

enum class CallKind : uint32_t {
  none,
  join,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  barrier,
  pairs
};

// Of each of a rank's two windows. Measured with two processes on two busy cores, 498 MB all_reduce: 64 KB 0.73 s, 256
// KB 0.22 s, 512 KB 0.18 s, 1 MB 0.13 s; every window costs a barrier, and there a neighbour may have to be woken.
constexpr int64_t kWindowBytes = 1 << 20;
constexpr int64_t kStaged = -1;  // the buffer lies in private memory
constexpr int64_t kUnread = -2;  // no peer reads this rank's buffer in this call

struct Call {
  CallKind kind = CallKind::none;
  int32_t dtype = 0;
  int64_t count = 0;  // elements per slice
  int64_t root = -1;
  int64_t offset = kUnread;  // of the buffer that peers read, in this rank's file
  int64_t number = 0;        // from 1, not counting messages

  bool fits(const Call& other) const;
  std::string text() const;  // "all_reduce of 10 Float"
};

// Shared memory, in the lowest member's file. Two calls, used in turn: a member may post the next call while another
// still compares this one, but not the one after it.
struct alignas(64) Member {
  std::atomic<uint32_t> arrived;         // value of the gate's word that this member waits to leave, plus 1
  std::atomic<uint32_t> doing;           // CallKind, for messages of others
  int64_t windows_offset, rings_offset;  // in the member's own file
  Call calls[2];
  Bell bell;  // rung when a ring of this member moved
};
struct Control {
  std::atomic<uint32_t> count;  // members that have arrived
  Bell gate;                    // rung by the last one
  Member members[1];            // as many as the group has
};

// Where the slices of all members lie during one step of a collective: rank p's slice j at base[p] + j * stride.
struct View {
  std::vector<char*> base;
  int64_t stride = 0;  // bytes
  bool in_place = false;
};

class LocalGroup final : public Group {
 public:
  LocalGroup(std::shared_ptr<Host> host, std::vector<int64_t> ranks, std::string label);
  ~LocalGroup() override;

  int64_t rank() const override { return me_; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  const std::string& label() const override { return label_; }

  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  WorkPtr all_reduce(at::Tensor t) override;
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override;
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override;
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override;
  WorkPtr broadcast(at::Tensor t, int64_t root) override;
  WorkPtr send(at::Tensor t, int64_t to) override;
  WorkPtr recv(at::Tensor t, int64_t from) override;
  void batch_begin() override;
  void batch_end() override;
  void barrier() override;

 private:
  struct PairWork;
  using Consume = std::function<void(const View&, int64_t begin, int64_t length)>;

  void join();
  void check(const char* call, const at::Tensor& t, bool sums = false) const;
  void check_sizes(const char* call, const at::Tensor& whole, const at::Tensor& slice, bool equal) const;
  Call call(CallKind kind, const at::Tensor& read, int64_t count, int64_t root = -1) const;
  void begin(Call& call);
  void finish();
  void meet();  // the barrier below all collectives
  void compare() const;
  // `in`: this rank's `slices` slices of call.count elements, null if nobody reads them.
  void exchange(Call call, const char* in, int64_t slices, const Consume& consume);
  void stage(const char* in, int64_t slices, int64_t begin, int64_t piece);
  void reduce_window(at::Tensor& t, const View& view, int64_t begin, int64_t length);
  void reduce_in_place(at::Tensor& t, const View& view, int64_t length);
  WorkPtr transfer(bool sending, at::Tensor t, int64_t peer);
  void run_transfers();
  bool advance_all();
  // Waits until the bell rang. `missing`: the members waited for, by index; `what`: what they did not reach.
  void wait(Bell& bell, uint32_t seen, const std::function<std::vector<int64_t>()>& missing, const std::string& what);
  std::string who(const std::vector<int64_t>& members) const;
  std::string where() const;  // `all_reduce #17 of group "dp"`

  char* file(int64_t member) const { return files_[static_cast<size_t>(member)]; }
  Member& member(int64_t index) const { return control_->members[index]; }
  char* window(int64_t member) const;
  Ring& ring(int64_t from, int64_t to) const;
  bool last_call_matches(int64_t index) const;

  std::shared_ptr<Host> host_;
  const std::vector<int64_t> ranks_;
  const std::string label_;
  const int64_t me_;
  std::vector<Peer> peers_;   // by index
  std::vector<char*> files_;  // start of each member's file as mapped here; our own through our own mapping
  Control* control_ = nullptr;
  Call current_;
  int64_t calls_ = 0, messages_ = 0;
  uint64_t windows_ = 0;  // used so far: the parity picks one of two
  bool batching_ = false;
  std::vector<std::shared_ptr<PairWork>> transfers_;
};

}  // namespace drivetrain::local
