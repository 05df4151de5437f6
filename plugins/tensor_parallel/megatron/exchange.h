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
  Pending sum(const at::Tensor& x) const;
  // The same of rows that the caller writes into the memory himself: x = rows(B, S, columns), in order of `order`.
  at::Tensor rows(int64_t B, int64_t S, int64_t columns, const at::Tensor& like) const;
  at::Tensor order(const at::Tensor& ids_BS) const;  // ids [N] in the order of those rows
  Pending sum_rows(const at::Tensor& rows, int64_t B, int64_t S) const;
  // x [...] of each rank: [ranks, ...].
  Pending gather(const at::Tensor& x) const;

 private:
  Pending gather(const at::Tensor& x, bool in_order) const;
  at::Tensor memory(at::IntArrayRef sizes, const at::Tensor& like) const;
  at::Tensor reachable(const at::Tensor& x) const;
  int64_t share(int64_t positions) const;

  const int64_t ranks_, index_;
  const bool cuts_positions_;
  GroupPtr group_;
};

}  // namespace drivetrain::megatron
