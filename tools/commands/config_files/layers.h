// Configs in layers: "extends" names files that are read first, and what is said later wins. Main thread.
//
// Two objects become one, key by key; anything else replaces what was there: lists, numbers, null. A section of another
// "type" replaces the whole section, since options of two implementations do not mix. Every value keeps the file and
// line where it was written, for messages and for paths relative to that file.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

// Reads the files that `config` extends, and those that they extend, and puts `config` over them; the key is gone then.
// `path`: where `config` was read. Error(config) for a file that is not there, is no object or extends itself.
DRIVETRAIN_INTERNAL Value with_layers_below(Value config, const std::string& path, Problems& problems);

// A config that stands below another one by the command line (--deepspeed FILE), with all that it extends.
DRIVETRAIN_INTERNAL Value read_layer(const std::string& path, Problems& problems);

// What to say of a config that tells how to train and not what, as a DeepSpeed file does; "" of any other.
DRIVETRAIN_INTERNAL std::string missing_half(const Value& config, const std::string& path);

// `upper` over `lower`, two configs. A section with "type" and "params" and the same section with bare options are one.
DRIVETRAIN_INTERNAL Value merged_configs(Value lower, const Value& upper);

}  // namespace drivetrain
