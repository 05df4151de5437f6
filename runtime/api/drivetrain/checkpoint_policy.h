// When checkpoints are saved, and which of them are kept. Any number of policies may be active: a save is due if one of
// them says so, and a tag is removed only if none of them keeps it. Thread: main.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/plugin.h>
#include <drivetrain/state.h>

DRIVETRAIN_CONTRACT(checkpoint_policy)

namespace drivetrain {

// A moment between two steps. Every member is the same on all ranks.
struct SaveMoment {
  int64_t step = 0;    // the step that was just finished, from 1
  bool last = false;   // no step follows: the run is done or was asked to stop
  bool done = false;   // the run has reached train_steps
  int signal = 0;      // the signal by which a rank was asked to stop; 0: none
  bool busy = false;   // the save before this one is still being written: another one would wait for it
  double seconds = 0;  // since this start of the run, by rank 0's clock
  // Figures of the step by their names in metrics.jsonl ("loss", "grad_norm", "valid_loss", ...); an object. Figures
  // that differ between ranks are not in it.
  Value figures;
};

class DRIVETRAIN_API CheckpointPolicy : public Plugin {
 public:
  static constexpr const char* kKind = "checkpoint_policy";
  ~CheckpointPolicy() override;

  // Called after every step, on every rank, with equal arguments, and for every policy, even if another has said that a
  // save is due. Returns the same on all ranks.
  virtual bool due(const SaveMoment& moment) = 0;
  // Called on rank 0 after a tag was committed. `tags`: all complete tags, newest first. Returns one entry per tag:
  // whether this policy wants it kept. A policy that has no say returns false for all. The newest tag is kept in any
  // case.
  virtual std::vector<bool> keep(const std::vector<StoredTag>& tags) = 0;
  // Visits what this policy keeps from step to step (state.h): the best value so far.
  virtual void state(StateVisitor&) {}
};

}  // namespace drivetrain
