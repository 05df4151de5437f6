// The verdict on a key that no plugin claims. Beneath select_plugins; no state.
#pragma once

#include <string>

#include "config/known_sections.h"

namespace drivetrain {

// `path`: of the key, "checkpoint.writer". `config`: the whole file, for what DeepSpeed refuses together.
void check_known_key(const std::string& path, const KeyFact& fact, const Value& value, const Value& config,
                     Problems& problems);

}  // namespace drivetrain
