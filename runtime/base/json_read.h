// Reading JSON with positions, beneath parse_json and --set. No state; any thread.
#pragma once

#include <string>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

enum class JsonPositions { lines, none };  // none: every value stands at `file` alone ("--set #2")

// False if the text is not JSON; then `value` is null and `syntax` has the one problem that stopped the reader.
// Duplicate keys and numbers out of range go to `problems` and do not stop it.
DRIVETRAIN_INTERNAL bool read_json(const std::string& text, const std::string& file, JsonPositions positions,
                                   Value& value, Problem& syntax, Problems& problems);

}  // namespace drivetrain
