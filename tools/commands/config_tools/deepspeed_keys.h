// configs/deepspeed_keys.json, compiled in: what DeepSpeed does with each key of its file. Immutable; any thread.
#pragma once

#include <map>
#include <string>

#include "internal.h"

namespace drivetrain {

// Path ("zero_optimization.stage") -> default and meaning.
DRIVETRAIN_INTERNAL const std::map<std::string, std::string>& deepspeed_keys();

}  // namespace drivetrain
