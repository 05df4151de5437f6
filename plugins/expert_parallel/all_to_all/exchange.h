// Tokens on their way to the ranks that have their experts, and what these return. A token goes once to each rank that
// has at least one of its experts, however many that are, and one row comes back from there: the sum of what that
// rank's experts say of it. What arrives lies by source rank, then in the source's order of tokens.
//
// Thread: one call at a time. All calls but `sum_home` are collective over the ranks of the axis. Legend: T tokens of
// this rank, K choices of each, P ranks, S rows that leave, N rows that arrive, C columns.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/expert_sharing.h>
#include <drivetrain/toolkit/layers/mixture.h>

namespace drivetrain::all_to_all {

struct Trip {
  SortedRows rows;                      // what leaves, by rank, then token: the choices of token t are its ranks
  std::vector<int64_t> sent, received;  // [P]: rows
  int64_t chosen = 0;                   // the most choices that tokens of any rank have
  int64_t used = 0;                     // choices of tokens that arrive that are of this rank's experts
  int64_t rows_sent() const;
  int64_t rows_received() const;
};

// Rows that are under way.
struct Travel {
  at::Tensor coming;
  WorkPtr work;
};
// They are there when it returns, which it does once: nothing is held afterwards.
at::Tensor wait_for(Travel& travel);

// Says once that all tokens of a rank go to one rank. Thread: main.
class OneSided {
 public:
  explicit OneSided(Log* log) : log_(log) {}  // null: says nothing
  void see(const Trip& trip);

 private:
  Log* log_;
};

class Exchange {
 public:
  explicit Exchange(std::shared_ptr<const ExpertRanks> ranks, std::shared_ptr<OneSided> one_sided = {})
      : ranks_(std::move(ranks)), one_sided_(std::move(one_sided)) {}

  // Waits until the host knows how many rows travel.
  Trip trip(const at::Tensor& experts_TK) const;
  // Of each token what its ranks get: [T, C] to [N, C].
  Travel there(const at::Tensor& values_TC, const Trip& trip) const;
  // The way back of what came: [N, C] to [S, C].
  Travel back(const at::Tensor& values_NC, const Trip& trip) const;
  // What came back, summed over ranks by the tree that choices are summed by over experts: [T, C].
  at::Tensor sum_home(const at::Tensor& returned_SC, const Trip& trip) const;
  // Choices as this rank's experts count: those of others are nobody's.
  at::Tensor own(const at::Tensor& experts) const;

 private:
  at::Tensor leaving(int64_t rows, const at::Tensor& like) const;
  Travel travel(const at::Tensor& rows, const std::vector<int64_t>& sent, const std::vector<int64_t>& received) const;

  const std::shared_ptr<const ExpertRanks> ranks_;
  const std::shared_ptr<OneSided> one_sided_;
};

}  // namespace drivetrain::all_to_all
