// What WholeTensors will send and hold, from layouts alone, before there are ranks: for UpdatePlan (planned_update.h).
// Pure; any thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/planned_update.h>
#include <drivetrain/toolkit/sharding/whole_tensors.h>

namespace drivetrain {

class PlanContext;

// Index of each matrix's owner among `ranks`: by work, the largest first, each for the rank with the least so far.
std::vector<int64_t> owners_of(const std::vector<WholeTensor>& tensors, int64_t ranks);
// Indices of the matrices of each round, ascending: of each owner as many as `limit` elements allow, at least one.
std::vector<std::vector<size_t>> rounds_of(const std::vector<WholeTensor>& tensors, const std::vector<int64_t>& owners,
                                           int64_t ranks, int64_t limit);

// Of ranks that hold flat ranges of what they have of a parameter (ZeRO, FSDP) only the mean size is known: of an
// owner's own matrix, too, it is taken to hold as much as of any other.
class PlannedMatrices {
 public:
  // Those that `cut` makes of the stage's trained parameters.
  PlannedMatrices(const PlannedUpdate& update, const WholeTensors::Cut& cut, const WholeTensors::Options& options);

  std::vector<WholeTensor> of_busiest() const;  // of the owner with the most work
  double held() const { return held_; }         // elements of matrices of which a rank has the values
  // Declares what a rank sends to owners and, of results, back: the mean over the stage. A message counts along the
  // outermost of the axes along which the two ranks differ.
  void tell_traffic(PlanContext& ctx) const;
  // At the fullest moment of WholeTensors::run: matrices, what travels, and `computing` bytes while owners compute.
  double most_bytes(double computing) const;

 private:
  // Elements of a round: of the owner that has most, what is sent and received on the way to owners, and of results.
  struct Round {
    double matrices = 0, to_owners = 0, back = 0;
  };
  using ByAxis = std::map<std::string, double>;

  // `elements` go from a rank to all others that differ from it along some of these axes, and along no other.
  void send_along(const std::set<std::string>& axes, double elements, ByAxis& sent) const;
  void add_round(const std::vector<size_t>& tensors);
  double bytes_of(double elements) const { return elements * static_cast<double>(c10::elementSize(options_.dtype)); }

  const WholeTensors::Options options_;
  std::vector<Axis> axes_;  // of the stage
  int64_t ranks_ = 1;
  std::vector<WholeTensor> tensors_;
  std::vector<double> shares_;  // of each: what one rank holds
  std::vector<int64_t> owners_;
  std::vector<Round> rounds_;
  ByAxis to_owners_, back_;  // elements that all ranks send together
  double held_ = 0;
};

}  // namespace drivetrain
