// What tensor-parallel ranks say to each other: sums of products' parts, and under sequence parallelism the positions
// of the sequence that the others have. Calls begin at once; what they give is taken with `finish`, after work that
// needs no other rank.
//
// Activations are [B, S, ...] on all ranks, or [B, s, ...] with s = S / ranks where positions are cut. Ranks exchange
// whole blocks of memory, so cuts of positions are copied into rank order first, but for B = 1, where they lie so
// already. Owner: the plugin, shared with its layers; the group is there from `attach` on. Thread: one call at a time.
#pragma once

#include <drivetrain/communicator.h>
#include <drivetrain/mesh.h>

namespace drivetrain::megatron {

inline constexpr const char* kAxis = "tp";

// A tensor that other ranks still work on.
class Pending {
 public:
  Pending() = default;
  Pending(WorkPtr work, at::Tensor tensor, bool by_rank = false)
      : work_(std::move(work)), tensor_(std::move(tensor)), by_rank_(by_rank) {}
  // Once. The tensor is new memory of the caller's.
  at::Tensor finish();

 private:
  WorkPtr work_;
  at::Tensor tensor_;
  bool by_rank_ = false;  // [ranks, B, s, ...], to be put in order of positions
};

class Exchange {
 public:
  // `index`: this rank's. `cuts_positions`: sequence parallelism.
  Exchange(int64_t ranks, int64_t index, bool cuts_positions)
      : ranks_(ranks), index_(index), cuts_positions_(cuts_positions) {}
  void attach(GroupPtr group) { group_ = std::move(group); }

  int64_t ranks() const { return ranks_; }
  int64_t index() const { return index_; }
  bool cuts_positions() const { return cuts_positions_; }

  // [B, s, ...] to [B, S, ...].
  Pending gather_positions(const at::Tensor& x) const;
  // The sum over ranks of x [B, S, ...], dense, which it may overwrite; where positions are cut, [B, s, ...] of the
  // sum.
  Pending sum(const at::Tensor& x) const { return sum(x, true); }
  // The same, and x stays as it is.
  Pending sum_of_copy(const at::Tensor& x) const { return sum(x, false); }
  // x [...] of each rank: [ranks, ...].
  Pending gather(const at::Tensor& x) const;
  // Puts the sum over ranks in the place of x, contiguous, at once.
  void sum_all(const at::Tensor& x) const { group_->all_reduce(x)->wait(); }

 private:
  Pending gather(const at::Tensor& x, bool in_order) const;
  at::Tensor memory(at::IntArrayRef sizes, const at::Tensor& like) const;
  Pending sum(const at::Tensor& x, bool overwrite) const;
  at::Tensor reachable(const at::Tensor& x, bool overwrite) const;
  int64_t share(int64_t positions) const;

  const int64_t ranks_, index_;
  const bool cuts_positions_;
  GroupPtr group_;
};

}  // namespace drivetrain::megatron
