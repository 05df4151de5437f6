// The terms that units add to the loss (StepContext::add_loss): what their gradients begin with, and their figures; how
// these and the figures of StepContext::metric are added up over ranks. Main thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/communicator.h>
#include <drivetrain/step_context.h>

#include "internal.h"

namespace drivetrain {

constexpr size_t kLongestFigure = 79;

// A float64 scalar on the device. Of a figure: of so many values. Of a loss term, whose name begins with
// kLossTermFigures: the sum over the step's valid tokens; the mean over the ranks that share the layers is theirs
// together, whether each has all tokens or they have a part each.
struct NamedSum {
  at::Tensor sum;
  double count = 0;
};
using NamedSums = std::map<std::string, NamedSum>;

// This rank's terms of one step.
class DRIVETRAIN_INTERNAL LossTerms {
 public:
  // `seed`: what the cross-entropy's backward starts with.
  void begin(double seed) { seed_ = seed, terms_.clear(); }

  // `labels`: of the micro-batch `micro`, on the device: a recorded step counts those of each replay. `ranks`: that
  // have as many others of its labels; 1: they are all. `counts`: false where the unit runs again, so that a term is
  // counted once. Returns what the gradient of `value` begins with. Error(plugin) for a name or a value that makes no
  // sense.
  at::Tensor add(const std::string& name, const at::Tensor& value, double weight, int64_t micro,
                 const at::Tensor& labels, int64_t ranks, bool counts);

  // Added up in order of micro-batch, whatever the schedule's order was.
  NamedSums sums() const;

 private:
  double seed_ = 0;
  std::map<std::string, std::map<int64_t, at::Tensor>> terms_;  // by name and micro-batch
};

// Error(plugin) if a unit may not add such a term.
DRIVETRAIN_INTERNAL void check_loss_term(const std::string& name, const at::Tensor& value, double weight);

struct SumOverRanks {
  double sum = 0, count = 0;
};
// Of one program. Stages have other names, which no rank knows of the others: names travel when those of a rank change,
// numbers alone in all other steps.
class DRIVETRAIN_INTERNAL SumsOverRanks {
 public:
  SumsOverRanks(GroupPtr world, const at::Device& device) : world_(std::move(world)), device_(device) {}

  static double digest(const NamedSums& mine);  // of the names, a whole number

  // Added in order of rank: every rank gets the same bits. `most`: the largest number of names of any rank, at least 1.
  // `digests`: of every rank's names. Collective; waits for the device.
  std::map<std::string, SumOverRanks> add(const NamedSums& mine, int64_t most, const std::vector<double>& digests);

 private:
  const GroupPtr world_;
  const at::Device device_;
  std::vector<double> digests_;     // of the names below
  std::vector<std::string> names_;  // `most` of every rank; empty ones: it has no further ones
};

}  // namespace drivetrain
