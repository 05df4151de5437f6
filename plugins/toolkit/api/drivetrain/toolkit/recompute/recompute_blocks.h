// What recompute policies share: the choice of blocks, the estimate of its cost, and inputs that are offloaded to host
// memory. Thread: main; BlockChoice::has also autograd's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <drivetrain/recompute.h>

namespace drivetrain {

class HostStash;

// The first round(fraction * n) of this rank's n blocks (Unit::is_block). Embedding and head are never recomputed,
// since that would free little memory. The first blocks are chosen because backward reaches them last: when such a
// block is recomputed, the activations of all later blocks are freed already.
class BlockChoice {
 public:
  explicit BlockChoice(double fraction) : fraction_(fraction) {}
  // Call it in `plan`. Returns the share of blocks that will be chosen. If that is 0, reports that the option has no
  // effect.
  double plan(PlanContext& ctx) const;
  // Call it in `plan`. Reports the cost of the second forward. `stash`: what offloads the inputs, whose copies and
  // memory are reported too; null: they stay.
  void report_cost(PlanContext& ctx, const HostStash* stash) const;
  void choose(const UnitList& units);  // call it in Recompute::choose
  bool has(const std::string& unit) const { return names_.contains(unit); }
  int64_t chosen() const { return static_cast<int64_t>(names_.size()); }
  int64_t blocks() const { return blocks_; }
  // The regions that the chosen blocks declare: name -> whether recomputing the region frees memory in at least one
  // block. No value before `choose`, or if one of the blocks does not know what it keeps (Unit::keeps).
  using Regions = std::map<std::string, bool>;
  const std::optional<Regions>& regions() const { return regions_; }

  static int64_t count(double fraction, int64_t blocks);

 private:
  const double fraction_;
  std::set<std::string> names_;
  int64_t blocks_ = 0;
  std::optional<Regions> regions_;
};

// The share of the forward pass of all blocks, and of their attention, in the floating-point operations of a step
// (forward and backward). Computed from the model's facts; attention is 0 while the sequence length is not known.
struct ForwardShares {
  double blocks = 0, attention = 0;
};
ForwardShares forward_shares(const PlanContext& ctx);
// "24 %" for 0.2431.
std::string percent(double share);

// Offloads tensors to host memory and back. The copies have a stream of their own, which follows the current one and
// keeps what it reads, so the caller may drop the tensors at once. Host buffers are reused. The tensors that
// Held::restore returns are contiguous. Main thread.
class HostStash {
 public:
  explicit HostStash(bool pinned);
  std::unique_ptr<Held> hold(const Tensors& tensors) const;
  bool pinned() const;

 private:
  struct Pool;
  class OnHost;
  const std::shared_ptr<Pool> pool_;
};

}  // namespace drivetrain
