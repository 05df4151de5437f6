// The factor that the loss is multiplied by before its backward, and how it follows overflows: DeepSpeed's dynamic loss
// scaler, state by state. It knows no tensors: the caller says of each update whether its gradients overflowed, the
// same answer on every rank, so that ranks agree without a word. Main thread.
//
// Source: DeepSpeed's DynamicLossScaler as ZeRO stages 1 to 3 use it. We differ in one place: an update is divided by
// the scale that its gradients were made with (`scale()` before `update`), never by the one that follows from it.
#pragma once

#include <cstdint>

#include <drivetrain/precision.h>
#include <drivetrain/state.h>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL LossScaler {
 public:
  explicit LossScaler(const LossScaling& rules) : rules_(rules), scale_(rules.initial), tolerance_(rules.hysteresis) {}

  double scale() const { return scale_; }
  bool dynamic() const { return rules_.dynamic; }
  // Whether another overflow could no longer be answered: the scale is due to fall and is at its minimum.
  bool exhausted() const { return rules_.dynamic && due_to_fall() && scale_ == rules_.minimum; }
  // Once per step, after scale() was used. Not with an overflow when exhausted.
  void update(bool overflow);
  // The scale, and what its next moves go by.
  void state(StateVisitor& visitor);

 private:
  bool due_to_fall() const { return rules_.hysteresis == 1 || tolerance_ == 1; }
  void fall();
  void grow();

  LossScaling rules_;
  double scale_;
  int64_t tolerance_;  // overflows until the scale falls, counting the one that makes it fall
  int64_t steps_ = 0, last_overflow_ = -1;
};

}  // namespace drivetrain
