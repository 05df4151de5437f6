// The key `long_context`: sequences are long, and what they need to fit the memory of a rank is chosen before the run
// is planned. Who chooses is whoever plans runs; here is only what the key says. Pure.
#pragma once

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

struct LongContext {
  bool enabled = false;
  double memory_gib = 0;  // of one rank's device; 0: that of the machine at hand
};

// `given`: the key's value. A value that is none of its forms is added to `problems`.
DRIVETRAIN_INTERNAL LongContext read_long_context(const Value& given, Problems& problems);

}  // namespace drivetrain
