// Learning rate, momentum and weight decay as a function of the progress of training. A pure function needs no state to
// resume. Thread: main; const calls from any thread.
#pragma once

#include <cstdint>

#include <drivetrain/optimizer.h>
#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(lr_schedule)

namespace drivetrain {

struct Progress {
  int64_t updates = 0;              // optimizer updates before this step, skipped ones not counted: 0 in the first step
  int64_t samples = 0, tokens = 0;  // rows and valid labels of these updates, over all ranks
  int64_t train_steps = 0;          // of the whole run; 0: not known
};

class DRIVETRAIN_API LrSchedule : public Plugin {
 public:
  static constexpr const char* kKind = "lr_schedule";
  ~LrSchedule() override;
  // The hyperparameters of the step that follows `progress`. `base`: what the optimizer section sets
  // (Optimizer::groups). Called in every step once per group, with equal arguments on all ranks. All values must be
  // finite.
  virtual Hyper at(const Progress& progress, const Hyper& base) const = 0;
  // For a schedule that is not a pure function of its arguments (state.h). Between two steps.
  virtual void state(StateVisitor&) {}
};

}  // namespace drivetrain
