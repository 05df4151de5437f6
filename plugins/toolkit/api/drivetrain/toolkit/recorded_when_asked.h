// A word of a plugin in `plan`, beside PlanContext::capturable: steps with it may be recorded, and nobody has seen that
// yet where it counts, on several GPUs. "capture": true records them, "auto" does not.
#pragma once

namespace drivetrain::toolkit {

// For PlanContext::offer.
inline constexpr const char* kRecordedWhenAsked = "step.recorded_when_asked";

}  // namespace drivetrain::toolkit
