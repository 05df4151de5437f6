// What a step of a pipeline would take if messages took no time:
// its schedule's programs, simulated with the times that the stages took in this run.
// The rest of the measured step is waiting and moving.
#pragma once

#include <optional>
#include <vector>

#include "bench/phase_watch.h"
#include "plan/prepared_run.h"

namespace drivetrain {

struct PipelineIdeal {
  struct Stage {
    double forward = 0, backward = 0, backward_weight = 0;  // seconds of all micro-batches of a step
  };
  std::vector<Stage> stages;
  double seconds = 0;  // of the program and what every step has besides
  double bubble = 0;   // of the program alone: idle over busy time
};

// `phases`: the median step of every rank, in rank order. Nothing where there is one stage.
std::optional<PipelineIdeal> pipeline_ideal(const PreparedRun& run, const std::vector<PhaseSeconds>& phases);

}  // namespace drivetrain
