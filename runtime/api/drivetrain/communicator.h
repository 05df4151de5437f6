// Communication between ranks: groups with collectives and point-to-point calls.
//
// Every reduction is a sum. A group adds by one fixed binary tree over rank index - neighbours first, then neighbouring
// pairs, ... - whatever the collective and wherever the element lies,
// so all_reduce equals reduce_scatter plus all_gather bit for bit.
// Every rank makes the same calls on a group in the same order.
// A call may return before its work is done;
// works of one or several groups may be waited for in any order, and waiting for one makes progress on all of them.
// Calls on one group take effect in the order in which they were made.
// Ownership: the caller keeps buffers alive and untouched until the Work was waited for (a Work keeps its tensors too).
// Thread: one call at a time per group; `abort` from anywhere. Stream: the current one; Work::wait makes it wait.
// Errors: Error(communication) naming the peer that is lost, late or aborted;
// config for shapes and dtypes that do not fit.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(communicator)

namespace drivetrain {

// A pending collective. Destroying it unwaited is allowed only after the group was aborted.
class DRIVETRAIN_API Work {
 public:
  virtual ~Work();
  virtual void wait() = 0;  // may be called more than once
};
using WorkPtr = std::shared_ptr<Work>;

// A work with nothing left to wait for.
DRIVETRAIN_API WorkPtr completed_work();

class DRIVETRAIN_API Group {
 public:
  virtual ~Group();

  virtual int64_t rank() const = 0;                       // this rank's index within the group
  virtual const std::vector<int64_t>& ranks() const = 0;  // global ranks, ascending
  virtual const std::string& label() const = 0;           // "dp", "tp", "world"
  int64_t size() const { return static_cast<int64_t>(ranks().size()); }

  // Memory this group moves fastest (a shared segment, a registered buffer);
  // any tensor may be passed to the calls below.
  // Returns an uninitialised contiguous tensor [numel], valid while it is referenced.
  virtual at::Tensor allocate(int64_t numel, at::ScalarType dtype) = 0;
  // Memory that exists once for all ranks of the group, for values that each of them reads and only one of them writes:
  // [numel], contiguous, uninitialised, valid while any rank references it.
  // What one rank wrote, the others see after the next collective that follows it. all_gather into it, `in` being the
  // rank's own slice of it on every rank, moves nothing. Undefined on every rank where there is no such memory (other
  // hosts, devices); the caller then takes a buffer of its own. Collective. Default: undefined.
  virtual at::Tensor allocate_once(int64_t numel, at::ScalarType dtype);

  // All tensors are contiguous. In place: t := sum over ranks of t.
  virtual WorkPtr all_reduce(at::Tensor t) = 0;
  // out [size * n] := the ranks' in [n], in rank order. `in` may be the rank's own slice of `out`.
  virtual WorkPtr all_gather(at::Tensor out, at::Tensor in) = 0;
  // out [n] := this rank's slice of the sum of the ranks' in [size * n]. `out` may be that slice of `in`.
  virtual WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) = 0;
  // in and out [size * n]: slice j of in goes to rank j; slice i of out comes from rank i.
  virtual WorkPtr all_to_all(at::Tensor out, at::Tensor in) = 0;
  // The same with counts of elements: in [sum of sent] holds sent[j] elements for rank j, out [sum of received] gets
  // received[i] elements from rank i. Both vectors have one count per rank of the group, in rank order; slices follow
  // each other without gaps; 0 is allowed. `in` and `out` share no memory. Every rank knows its counts before the call:
  // what rank i sends to rank j is what j expects of i, else Error(communication) names both ranks and both counts.
  virtual WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                             const std::vector<int64_t>& sent) = 0;
  virtual WorkPtr broadcast(at::Tensor t, int64_t root) = 0;
  // to, from: indexes within the group; matched in call order per pair
  virtual WorkPtr send(at::Tensor t, int64_t to) = 0;
  virtual WorkPtr recv(at::Tensor t, int64_t from) = 0;
  // Sends and receives between the two belong together: none of them waits for another's completion.
  virtual void batch_begin() = 0;
  virtual void batch_end() = 0;
  virtual void barrier() = 0;
};
using GroupPtr = std::shared_ptr<Group>;

// The group of one rank: `rank` is its global rank, `device` is where `allocate` takes memory and where tensors of its
// calls lie. Copies are enqueued on the current stream, sums are the tensors themselves, and a send is taken by the
// next recv. `barrier` returns at once. Needs no communicator. Thread and errors: as Group.
DRIVETRAIN_API GroupPtr loopback_group(int64_t rank, const at::Device& device, std::string label);

class DRIVETRAIN_API Communicator : public Plugin {
 public:
  static constexpr const char* kKind = "communicator";
  ~Communicator() override;
  // `ranks` ascending and containing this rank. Called by all its members, in the same order on each.
  // `label` is unique.
  virtual GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) = 0;
  // Makes every pending and later call of all groups, here and on the peers, throw Error(communication) with `reason`.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace drivetrain
