// For whoever wants to know where a step's time goes: told each time a part of a step is over. Null where nobody asks,
// which is always but in benchmarks. Called on the main thread, in order; what the device still has queued is the
// clock's own affair.
#pragma once

#include <cstdint>

namespace drivetrain {

enum class Phase : uint8_t {
  between,  // steps: publishing, evaluation
  load,     // waiting for a micro-batch
  forward,
  backward,         // or its inputs' half
  backward_weight,  // the other half, where a schedule splits it
  wait,             // for other stages: what they send, and handing on
  finish,           // counts agreed by the ranks, gradients flushed, norm, the update's scalars sent
  update,           // optimizer, spreading of the new values
};
inline constexpr int kPhases = 8;

class PhaseClock {
 public:
  virtual ~PhaseClock() = default;
  virtual void over(Phase phase) = 0;  // the time since the last call belonged to it
};

inline void tell(PhaseClock* clock, Phase phase) {
  if (clock) clock->over(phase);
}

}  // namespace drivetrain
