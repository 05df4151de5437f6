// Rows of tokens on their way to the ranks that have the experts, and back, in an order that depends on nothing but the
// choices: a rank computes with the rows of its first expert, by source rank and in that rank's order, then those of
// its second expert, and so on.
//
// Thread: one call at a time. All calls but `counts_here` are collective over the ranks of the axis. Legend: E experts
// of all ranks, e of this rank, P ranks, D hidden.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/expert_sharing.h>

namespace drivetrain::all_to_all {

// How many rows of a call go and come.
struct Splits {
  std::vector<int64_t> sent;      // [E]: of this rank for each expert
  std::vector<int64_t> received;  // [P x e]: of each rank for each expert of this one
  int64_t rows_sent() const;
  int64_t rows_received() const;
};

class Exchange {
 public:
  explicit Exchange(std::shared_ptr<const ExpertRanks> ranks) : ranks_(std::move(ranks)) {}

  // `counts_E`: rows of this rank for each expert. Waits until the host knows them.
  Splits splits(const at::Tensor& counts_E) const;
  // Of all ranks together, for each expert of this one: int64 [e] on the device of `like`.
  at::Tensor counts_here(const Splits& splits, const at::Tensor& like) const;
  // Rows [R, D] sorted by expert, R at least rows_sent(), to [rows_received(), D] in the order of this rank's experts.
  at::Tensor there(const at::Tensor& rows, const Splits& splits) const;
  // The way back of what `there` brought: [R, D]. Rows behind rows_sent() are zero.
  at::Tensor back(const at::Tensor& rows, const Splits& splits, int64_t R) const;

 private:
  at::Tensor travel(const at::Tensor& rows, const std::vector<int64_t>& sent,
                    const std::vector<int64_t>& received) const;

  const std::shared_ptr<const ExpertRanks> ranks_;
};

}  // namespace drivetrain::all_to_all
