// What memory gives to the passes of a step: the update and the norm of gradients at its end, and what lies between the
// products of a block.
#pragma once

#include "bench/rank_alone.h"
#include "internal.h"
#include "predict/hardware.h"

namespace drivetrain {

// Of the rank's device; `gib` is not set. The shares are of the fastest of all that was measured.
DRIVETRAIN_INTERNAL MemoryRates measure_memory_rates(const RankAlone& rank);

// Of the memory of the host, beside a device.
DRIVETRAIN_INTERNAL HostMemoryRates measure_host_memory();

}  // namespace drivetrain
