// What forward passes leave for their backward on the fullest rank, by what the model says of a block, the schedule of
// micro-batches in flight and the recompute policy of regions. A figure before anything is allocated. Thread: main.
#pragma once

#include <string>

#include "plan/composition.h"

namespace drivetrain {

struct PlannedActivations {
  double bytes = 0;    // 0 where the model does not say
  std::string source;  // "model/...: 3 micro-batches x 8 blocks x 2048 tokens"
};

// Of a planned run, built or not.
PlannedActivations planned_activations(const Composition& run);

}  // namespace drivetrain
