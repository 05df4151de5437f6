// Learning rate (and momentum, weight decay) as a function of progress: one that is pure resumes for free.
// Thread: const calls from any thread.
#pragma once

#include <cstdint>

#include <drivetrain/optimizer.h>
#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(lr_schedule)

namespace drivetrain {

struct Progress {
  int64_t updates = 0;  // applied before this step: 0 in the first step
  int64_t samples = 0, tokens = 0;
  int64_t train_steps = 0;  // planned; 0 if not known
};

class DRIVETRAIN_API LrSchedule : public Plugin {
 public:
  static constexpr const char* kKind = "lr_schedule";
  ~LrSchedule() override;
  // The values to use in the step after `progress`, from the optimizer's own ones.
  virtual Hyper at(const Progress& progress, const Hyper& base) const = 0;
  // For one that keeps something from step to step. Main thread.
  virtual void state(StateVisitor&) {}
};

}  // namespace drivetrain
