// The figures of a step that are the runtime's own. No state; any thread.
#pragma once

#include <string>

#include "internal.h"

namespace drivetrain {

constexpr const char* kLossTermFigures = "loss_terms.";  // "loss_terms.NAME", of StepContext::add_loss

// Whether metrics.jsonl has this name already ("loss", "lr"), in this run or another.
DRIVETRAIN_INTERNAL bool is_own_figure(const std::string& name);

}  // namespace drivetrain
