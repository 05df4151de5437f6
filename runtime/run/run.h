// One rank of a run: its plan, the objects that it was planned with, and what was built for it. Main thread of a rank.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "formats/frozen_base.h"
#include "internal.h"
#include "plan/prepared_run.h"
#include "step/trainer.h"

namespace drivetrain {

struct DRIVETRAIN_INTERNAL Run : PreparedRun {
  explicit Run(PreparedRun planned) : PreparedRun(std::move(planned)) {}

  std::vector<Trainables> chunks;  // what this rank updates; empty until build_run
  std::string values_from;         // read instead of Model::weights_folder(); empty: that one
  std::string values_tag;          // of a checkpoint in `values_from`; empty: the newest
  std::string strategies_from;     // holds what strategies wrote, read instead of WeightFolder::from; empty: that
  std::string weights_from;        // the Hugging Face folder that initial weights came from; empty: none
  std::set<std::string> read_from_there;  // the parameters that it held
  FrozenBase frozen_base;                 // what visit_state leaves out; see refer_to_frozen_base
};

// Gives the model storage and fills it. Collective from here on.
DRIVETRAIN_INTERNAL void build_run(Run& run);

// All that this rank holds of the model's values once it is built: what it updates, its parts of what nobody updates,
// and what the storage owner named in neither, whole.
DRIVETRAIN_INTERNAL std::vector<Trainables> all_values(const Run& run);

// Decides what of the model checkpoints of this run hold by reference: its frozen parameters that were read from a
// Hugging Face folder, if none of the model's own is trained or a strategy says that its weights are not exported.
// Rank 0 reads that folder once more, for its digest. `resumed`: the values are a checkpoint's but for those that it
// refers to itself (Run::frozen_base). Before the first save.
DRIVETRAIN_INTERNAL void refer_to_frozen_base(Run& run, bool resumed);

// What the parts of a step use of a run, which outlives them. Of a run that is built.
DRIVETRAIN_INTERNAL ExecutorParts executor_parts(PreparedRun& run);
DRIVETRAIN_INTERNAL EvaluatorParts evaluator_parts(PreparedRun& run);
DRIVETRAIN_INTERNAL FinishParts finish_parts(Run& run);
DRIVETRAIN_INTERNAL TrainerParts trainer_parts(Run& run);

}  // namespace drivetrain
