// Why CUDA has no GPU for this process, in words that say what to do: a driver that is too old, no driver at all, or
// CUDA_VISIBLE_DEVICES of another host. Pure functions; any thread.
#pragma once

#include <drivetrain/error.h>

#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

struct NoDevice {
  std::string said = {};                  // of the CUDA runtime
  int driver = 0, wanted = 0;             // versions as 13000 for 13.0; driver 0: there is none
  std::string visible = {};               // CUDA_VISIBLE_DEVICES
  bool is_set = false;                    // it may be set and empty
  std::vector<std::string> on_host = {};  // UUIDs, as the driver's management library tells them
};

// Error(config).
DRIVETRAIN_INTERNAL Error no_device(const NoDevice& facts);

// What stands in the environment, for a message: " (CUDA_VISIBLE_DEVICES=0,9; ...)"; "": it is not set.
DRIVETRAIN_INTERNAL std::string visible_text(const char* visible);

}  // namespace drivetrain
