// The training loop of one rank: one optimizer step after another, evaluation where it is due, events for the monitors.
#pragma once

#include <atomic>
#include <functional>

#include "compose/composition.h"
#include "data/feed.h"
#include "step/executor.h"
#include "step/finish.h"

namespace drivetrain {

class Trainer {
 public:
  // `publish` receives every step's object as metrics.jsonl has it (rank 0 hands it to the monitors); `stop` is polled
  // between steps: once set on any rank, all ranks end after the step they are in.
  using Publish = std::function<void(int64_t step, Value data)>;
  Trainer(Composition& run, Publish publish, const std::atomic<int>& stop);

  // From the next step on; null ends it. Not owned.
  void observe(PhaseClock* clock);

  // Runs to train_steps. Returns the last step done.
  int64_t train();

 private:
  StepResult train_step(int64_t step);
  double evaluate(int64_t step);
  Value figures(const StepResult& result, double step_s) const;

  Composition& run_;
  Publish publish_;
  const std::atomic<int>& stop_;
  FeedPlan plan_;
  Feed feed_;
  StepState state_;
  Executor executor_;
  Finish finish_;
  Program train_program_, forward_program_;
  Trainables all_trainables_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace drivetrain
