// The words of a config that stand for places on this machine.
#pragma once

#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

// Replaces a leading "${torch}" of every string by torch_folder() (device/open_device.h).
DRIVETRAIN_INTERNAL void expand_places(Value& config);

}  // namespace drivetrain
