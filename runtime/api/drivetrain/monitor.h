// Receives the events of a run, for a console, a file or a dashboard. Monitors are created and planned on every rank;
// rank 0's receive the events. Events are copies of host values, never tensors. Thread: `on_event` on one thread that
// all monitors share, in the order of the events. A slow monitor delays the other monitors. It delays the training only
// when the bounded queue (1024 events) is full.
#pragma once

#include <drivetrain/plugin.h>
#include <drivetrain/state.h>

DRIVETRAIN_CONTRACT(monitor)

namespace drivetrain {

struct Event {
  // "run_begin", before the first step. data: facts of the run: output_dir, train_steps, steps_per_print, terminal,
  // parameters, and first_step, which is 1 or the step after the checkpoint that the run goes on from.
  //
  // "step", after every training step. data: as in metrics.jsonl (step, loss, grad_norm, lr, tokens, step_s, ...).
  //
  // "run_end", after the last step, unless the run fails. data: reason, ...
  std::string type;
  int64_t step = 0;
  Value data;
};

class DRIVETRAIN_API Monitor : public Plugin {
 public:
  static constexpr const char* kKind = "monitor";
  ~Monitor() override;
  // Called once per event. If it throws, this monitor gets no more events, and the run ends with that error.
  virtual void on_event(const Event& event) = 0;
  // Visits what this monitor counts from step to step (state.h), so that a run that goes on counts on. Thread: main,
  // while no `on_event` runs and every event so far has been handled; before "run_begin" where a run goes on. Only what
  // rank 0's monitor shows is saved.
  virtual void state(StateVisitor&) {}
};

}  // namespace drivetrain
