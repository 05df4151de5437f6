#include "step/loss_scaler.h"

#include <algorithm>

namespace drivetrain {

// The tolerance stays used up after it made the scale fall: until the next growth every overflow halves the scale.
void LossScaler::fall() {
  if (due_to_fall())
    scale_ = std::max(scale_ / 2, rules_.minimum);
  else
    --tolerance_;
  last_overflow_ = steps_;
}

// The good steps before this one are counted, so a stretch grows the scale with its step number window + 1.
void LossScaler::grow() {
  if (rules_.consecutive_hysteresis) tolerance_ = rules_.hysteresis;
  const int64_t good = steps_ - last_overflow_ - 1;
  if (good <= 0 || good % rules_.window != 0) return;
  tolerance_ = rules_.hysteresis;
  scale_ *= 2;
}

void LossScaler::state(StateVisitor& visitor) {
  visitor.number("scale", scale_);
  visitor.integer("tolerance", tolerance_);
  visitor.integer("steps", steps_);
  visitor.integer("last_overflow", last_overflow_);
}

void LossScaler::update(bool overflow) {
  if (!rules_.dynamic) return;
  overflow ? fall() : grow();
  ++steps_;
}

}  // namespace drivetrain
