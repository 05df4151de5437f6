// A communicator's group whose calls are written into the rank's flight record. Everything else is the group's own.
#pragma once

#include <memory>

#include <drivetrain/communicator.h>

#include "flight/record.h"
#include "internal.h"

namespace drivetrain {

// `record` null: the group itself.
DRIVETRAIN_INTERNAL GroupPtr recorded_group(GroupPtr group, std::shared_ptr<FlightRecord> record);

}  // namespace drivetrain
