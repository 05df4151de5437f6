// A word of a plugin in `plan`, in place of PlanContext::capturable: why steps with it are not recorded, by the option
// that is in the way. "capture": true is refused with it, and "auto" says it.
#pragma once

namespace drivetrain::toolkit {

// For PlanContext::offer, with the reason behind it: "offload_optimizer.device keeps ...".
inline constexpr const char* kNotRecorded = "step.not_recorded: ";

}  // namespace drivetrain::toolkit
