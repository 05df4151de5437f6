// The steps of a run on one rank, with what watches and saves them. Main thread.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/saver.h"
#include "observe/bus.h"
#include "report/memory_plan.h"
#include "run/run_state.h"
#include "train/beginning.h"

namespace drivetrain {

class Training {
 public:
  // Builds the model, loads the checkpoint that the run goes on from, and only then takes the folder: a start that
  // fails leaves nothing behind, and a run's folder as it was. `facts`: of the run. Collective. All arguments outlive
  // it.
  Training(const TrainRequest& request, Run& run, Beginning& beginning, RunFlight& flight, const Value& facts);

  // All steps.
  TrainOutcome train();
  // The run ends by `error`. A checkpoint that is being written is still finished, but who looks learns the error at
  // once, and a rank that does not write its part keeps nobody waiting.
  void end_saver(const std::exception& error);

  // For what follows the last step.
  std::exception_ptr late_failure() const { return trainer_.late_failure(); }
  const PlannedMemory& planned() const { return planned_; }
  const RunState& state() const { return state_; }
  EventBus* bus() const { return bus_.get(); }  // on rank 0; null on others

 private:
  TrainerParts parts();
  void begin(const Value& facts);
  std::unique_ptr<Saver> make_saver();

  const TrainRequest& request_;
  const RankEnvironment& env_;
  Run& run_;
  Beginning& beginning_;
  RunFlight& flight_;
  std::unique_ptr<EventBus> bus_;  // once there is a folder
  Trainer trainer_;
  const PlannedMemory planned_;
  RunState state_;
  std::unique_ptr<Saver> saver_;  // null: nothing is saved
};

}  // namespace drivetrain
