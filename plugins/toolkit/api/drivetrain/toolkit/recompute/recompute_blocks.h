// What recompute policies share: which blocks of the model they mean, what that costs,
// and inputs that wait in the host's memory.
// Thread: main; BlockChoice::has also autograd's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <drivetrain/recompute.h>

namespace drivetrain {

// The first round(fraction * n) of this rank's n blocks.
// Blocks are the units that say so (Unit::is_block): the ends of the model keep what they have, since
// recomputing them saves nothing that a block does not hold. The first ones, because the backward comes to them last:
// when a block runs again, all those after it that keep everything are gone, and there is room for it.
class BlockChoice {
 public:
  explicit BlockChoice(double fraction) : fraction_(fraction) {}
  // In `plan`: the share of the blocks that it will be. 0 where that is none, which is then said to be without effect.
  double plan(PlanContext& ctx) const;
  // In `plan`: what it costs that their forward runs twice. `to_host`: their inputs wait in the host's memory.
  void say_cost(PlanContext& ctx, bool to_host) const;
  void choose(const UnitList& units);  // in Recompute::choose
  bool has(const std::string& unit) const { return names_.contains(unit); }
  int64_t chosen() const { return static_cast<int64_t>(names_.size()); }
  int64_t blocks() const { return blocks_; }
  // Regions that chosen blocks declare, by name: whether computing one again frees anything in one of them. Nothing
  // before `choose`, or if one of the blocks does not say what it keeps.
  using Regions = std::map<std::string, bool>;
  const std::optional<Regions>& regions() const { return regions_; }

  static int64_t count(double fraction, int64_t blocks);

 private:
  const double fraction_;
  std::set<std::string> names_;
  int64_t blocks_ = 0;
  std::optional<Regions> regions_;
};

// Of the floating-point operations of a step (forward and backward):
// those of all blocks' forward, and of their attention's.
// By the model's facts; attention counts only where the sequence length is known.
struct ForwardShares {
  double blocks = 0, attention = 0;
};
ForwardShares forward_shares(const PlanContext& ctx);
// "24 %": 0.2431 in words.
std::string percent(double share);

// Copies tensors to memory of the host and back, in order with the device's work: the caller may drop them at once.
// Buffers are used again. What comes back is contiguous.
class HostStash {
 public:
  explicit HostStash(bool pinned);
  std::unique_ptr<Held> hold(const Tensors& tensors) const;

 private:
  struct Pool;
  class OnHost;
  const std::shared_ptr<Pool> pool_;
};

}  // namespace drivetrain
