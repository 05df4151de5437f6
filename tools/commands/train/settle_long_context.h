// A config with `long_context` before it is planned: settings and plugins of what was chosen. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/long_context.h"
#include "train/train_run.h"

namespace drivetrain {

// What is changed.
struct Settled {
  Value& config;
  const std::string& path;
  RunSettings& settings;
  std::vector<ChosenPlugin>& chosen;
};

// Changes `run` and tells `problems` what was chosen. Without a machine to plan for nothing is chosen, and a note says
// so.
LongContextChoice settle_long_context(const Settled& run, const Registry& registry, const RankSetup& setup,
                                      const std::optional<LongContextMachine>& machine, Problems& problems);

// Of a rank that is about to train: rank 0 chooses for all, so that they agree whatever each one's device has.
// Collective over all ranks of the store, unless it is a plan.
void settle_long_context(TrainRequest& request, Problems& problems);

}  // namespace drivetrain
