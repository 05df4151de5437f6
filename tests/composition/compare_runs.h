// Two runs of a case, or a run and the plain formulas, measured in tolerances of plain_training.h.
#pragma once

#include <string>

#include "composition/plain_training.h"
#include "support/train_threads.h"

namespace drivetrain::test {

// A run's figures and final weights in the form of the plain one. Tolerances are left at zero.
PlainRun figures_of(const RunResult& run);

// The largest difference of each kind, as a multiple of its tolerance, and where it is. Infinite where something is
// missing, not finite, or tokens or learning rates are not the same.
struct Distance {
  double loss = 0, norm = 0, weights = 0;
  std::string where;
  double largest() const;
};
Distance distance(const PlainRun& a, const PlainRun& b, const PlainRun& tolerance);

}  // namespace drivetrain::test
