// One rank of a run: its plan, the objects that it was planned with, and what was built for it. Main thread of a rank.
#pragma once

#include <vector>

#include "internal.h"
#include "plan/prepared_run.h"
#include "step/trainer.h"

namespace drivetrain {

struct DRIVETRAIN_INTERNAL Run : PreparedRun {
  explicit Run(PreparedRun planned) : PreparedRun(std::move(planned)) {}

  std::vector<Trainables> chunks;  // what this rank updates; empty until build_run
};

// Gives the model storage and fills it. Collective from here on.
DRIVETRAIN_INTERNAL void build_run(Run& run);

// All that this rank holds of the model's values once it is built: what it updates, its parts of what nobody updates,
// and what the storage owner named in neither, whole.
DRIVETRAIN_INTERNAL std::vector<Trainables> all_values(const Run& run);

// What the parts of a step use of a run, which outlives them. Of a run that is built.
DRIVETRAIN_INTERNAL ExecutorParts executor_parts(PreparedRun& run);
DRIVETRAIN_INTERNAL EvaluatorParts evaluator_parts(PreparedRun& run);
DRIVETRAIN_INTERNAL FinishParts finish_parts(Run& run);
DRIVETRAIN_INTERNAL TrainerParts trainer_parts(Run& run);

}  // namespace drivetrain
