// A config file and the `--set` arguments of the command line, as one Value. Main thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

// Throws Error(config) if the file or one that it extends is missing or not JSON. Problems with `--set` go to
// `problems`; they are numbered from 1 and the others are applied all the same.
// `below`: files that are read first, as if the first line of `path` extended them (layers.h).
DRIVETRAIN_INTERNAL Value load_config(const std::string& path, const std::vector<std::string>& sets, Problems& problems,
                                      const std::vector<std::string>& below = {});

// One `a.b.c=VALUE`. VALUE is JSON; what does not parse is a string. Missing objects are created, a bare string on the
// way becomes {"type": ...}, and options below a {type, params} section go into its params whether or not the key says
// so.
DRIVETRAIN_INTERNAL void apply_set(Value& config, const std::string& argument, int number, Problems& problems);

}  // namespace drivetrain
