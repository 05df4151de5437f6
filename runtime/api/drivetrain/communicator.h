// Communication between ranks: groups with collectives and point-to-point calls.
//
// Every reduction is a sum. A group adds by one fixed binary tree over rank index (neighbours first, then neighbouring
// pairs, and so on), for every collective and every element. So all_reduce equals reduce_scatter plus all_gather bit
// for bit. A plugin that adds in another order says so in `plan` (PlanContext::cost). Every rank makes the same calls
// on a group in the same order. A call may return before the transfer is complete. Works of one or several groups may
// be waited for in any order; waiting for one makes progress on all of them. Calls on one group take effect in the
// order in which they were made. Ownership: the caller leaves the buffers alone until it has waited for the Work. The
// Work keeps its tensors alive. Thread: one call at a time per group; `abort` from any thread. Stream: the current one;
// Work::wait makes it wait. Errors, from every call and from Work::wait: Error(communication) naming the peer that is
// lost, late or aborted; Error(config) for a shape or dtype that does not fit.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(communicator)

namespace drivetrain {

// A pending collective or message. It must be waited for before it is destroyed, unless the group was aborted.
class DRIVETRAIN_API Work {
 public:
  virtual ~Work();
  // Returns when the transfer is complete; on a device, when the current stream waits for it. May be called again.
  virtual void wait() = 0;
};
using WorkPtr = std::shared_ptr<Work>;

// A work that is complete.
DRIVETRAIN_API WorkPtr completed_work();

class DRIVETRAIN_API Group {
 public:
  virtual ~Group();

  virtual int64_t rank() const = 0;                       // this rank's index within the group
  virtual const std::vector<int64_t>& ranks() const = 0;  // global ranks, ascending
  virtual const std::string& label() const = 0;           // "dp", "tp", "world"
  int64_t size() const { return static_cast<int64_t>(ranks().size()); }

  // Memory that this group transfers fastest (a shared segment, a registered buffer). The calls below accept any
  // tensor. Returns an uninitialised contiguous tensor [numel], valid while it is referenced. Not a collective.
  virtual at::Tensor allocate(int64_t numel, at::ScalarType dtype) = 0;
  // One memory for all ranks of the group: every rank reads all of it, one rank writes each element. [numel],
  // contiguous, uninitialised, valid while any rank references it. A write is visible to the others after the next
  // collective. all_gather into it copies nothing if `in` is the rank's own slice of it on every rank. Collective.
  // Returns an undefined tensor on every rank if there is no such memory (several hosts, devices); the caller then
  // allocates a buffer of its own. Default: undefined.
  virtual at::Tensor allocate_once(int64_t numel, at::ScalarType dtype);

  // All tensors are contiguous. In place: t := sum over ranks of t.
  virtual WorkPtr all_reduce(at::Tensor t) = 0;
  // out [size * n] := the ranks' in [n], in rank order. `in` may be the rank's own slice of `out`.
  virtual WorkPtr all_gather(at::Tensor out, at::Tensor in) = 0;
  // out [n] := this rank's slice of the sum of the ranks' in [size * n]. `out` may be that slice of `in`.
  virtual WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) = 0;
  // in and out [size * n]: slice j of in goes to rank j; slice i of out comes from rank i.
  virtual WorkPtr all_to_all(at::Tensor out, at::Tensor in) = 0;
  // The same with uneven counts: in [sum of sent] holds sent[j] elements for rank j, out [sum of received] gets
  // received[i] elements from rank i. Both vectors have one count per rank of the group, in rank order; slices follow
  // each other without gaps; 0 is allowed. `in` and `out` share no memory. The count that rank i sends to rank j must
  // be the count that j expects from i; otherwise Error(communication) names both ranks and both counts.
  virtual WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                             const std::vector<int64_t>& sent) = 0;
  // root: index within the group.
  virtual WorkPtr broadcast(at::Tensor t, int64_t root) = 0;
  // to, from: index within the group. Messages of one pair are matched in the order of the calls.
  virtual WorkPtr send(at::Tensor t, int64_t to) = 0;
  virtual WorkPtr recv(at::Tensor t, int64_t from) = 0;
  // Sends and receives between batch_begin and batch_end run at the same time: none waits for another to complete.
  virtual void batch_begin() = 0;
  virtual void batch_end() = 0;
  virtual void barrier() = 0;
};
using GroupPtr = std::shared_ptr<Group>;

// The group of one rank, without a communicator. `rank`: its global rank. `device`: where `allocate` takes memory and
// where the tensors of its calls are. Copies are enqueued on the current stream; a sum is the tensor itself; the next
// recv takes what a send gave; `barrier` returns at once. Thread and errors: as Group.
DRIVETRAIN_API GroupPtr loopback_group(int64_t rank, const at::Device& device, std::string label);

class DRIVETRAIN_API Communicator : public Plugin {
 public:
  static constexpr const char* kKind = "communicator";
  ~Communicator() override;
  // `ranks`: global ranks, ascending, this rank among them. Collective over these ranks: every member makes the same
  // calls in the same order. `label` is unique. Called after the mesh is known, mostly in Strategy::attach. Main
  // thread.
  virtual GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) = 0;
  // Whether its groups have one memory for all their ranks (Group::allocate_once). The plan, and the measured memory,
  // then count each rank's share of it. Always the same.
  virtual bool has_one_memory() const { return false; }
  // Called when this rank fails. Makes every pending and later call of all groups, on this rank and on the others,
  // throw Error(communication) with `reason`. Any thread.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace drivetrain
