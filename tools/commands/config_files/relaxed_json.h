// A config that is no JSON: Hjson, as DeepSpeed takes it, or something else that has a name. Main thread; no state.
#pragma once

#include <string>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

// The text as a config. `syntax`: why it is no JSON, with the place. Where Hjson is as good, a note says so; where
// it is not, or holds what people do not mean, `problems` gets what the text is and what to do, and the value may be
// null.
Value read_relaxed(const std::string& text, const std::string& file, const Problem& syntax, Problems& problems);

// What a file is said to be that is no file but a config in base64, as DeepSpeed's launchers pass it on; "" for others.
std::string base64_hint(const std::string& text);

// read_json_file for a config: it may come through a pipe (`<(...)` of a shell), it may be Hjson, and only what stops
// the reader is thrown; duplicate keys and the like go to `problems`.
DRIVETRAIN_INTERNAL Value read_config_file(const std::string& path, Problems& problems);

}  // namespace drivetrain
