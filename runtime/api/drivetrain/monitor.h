// Listens to a run: copies only, no tensors. Lives on rank 0.
// Thread: `on_event` on one monitor thread, in order; a slow monitor delays others, never the step (the queue is
// bounded: the step waits only when it is full).
#pragma once

#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(monitor)

namespace drivetrain {

struct Event {
  // "run_begin": data holds run facts (output_dir, train_steps, steps_per_print, terminal, parameters, ...)
  // "step":      one optimizer step; data as metrics.jsonl has it (step, loss, grad_norm, lr, tokens, step_s, ...)
  // "run_end":   data: reason
  std::string type;
  int64_t step = 0;
  Value data;
};

class DRIVETRAIN_API Monitor : public Plugin {
 public:
  static constexpr const char* kKind = "monitor";
  ~Monitor() override;
  virtual void on_event(const Event& event) = 0;
};

}  // namespace drivetrain
