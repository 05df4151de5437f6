// The terms that units add to the loss (StepContext::add_loss): what their gradients begin with, and their figures.
// Main thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include <drivetrain/communicator.h>
#include <drivetrain/step_context.h>

#include "internal.h"

namespace drivetrain {

// By name: sums over the step's valid tokens, float64 scalars on the device. The mean over the ranks that share the
// layers is theirs together, whether each has all tokens or they have a part each.
using LossTermSums = std::map<std::string, at::Tensor>;

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
  LossTermSums sums() const;

 private:
  double seed_ = 0;
  std::map<std::string, std::map<int64_t, at::Tensor>> terms_;  // by name and micro-batch
};

// Error(plugin) if a unit may not add such a term.
DRIVETRAIN_INTERNAL void check_loss_term(const std::string& name, const at::Tensor& value, double weight);

// The sums of all ranks, added in order of rank: every rank gets the same bits. Stages have terms of different names,
// which no rank knows of the others. `most`: the largest number of terms of any rank, at least 1. Collective; waits for
// the device.
DRIVETRAIN_INTERNAL std::map<std::string, double> sum_over_ranks(const LossTermSums& mine, int64_t most,
                                                                 const GroupPtr& world, const at::Device& device);

}  // namespace drivetrain
