// Who else holds memory of a GPU, as NVIDIA's management library (libnvidia-ml.so.1, part of the driver) tells it.
// Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

struct DeviceHolder {
  int64_t pid = 0, bytes = -1;  // bytes: -1 where the driver does not tell
  std::string name = {};        // of the program; "" for a process of another container or user
};

// Processes that compute on the GPU of this UUID (32 hexadecimal digits), but this one. Empty where nobody tells.
DRIVETRAIN_INTERNAL std::vector<DeviceHolder> holders_of_device(const std::string& uuid);

// "\n   it is held by process 4711 (python, 70.2 GB) and process 4712 (1.0 GB)"; "" for none.
DRIVETRAIN_INTERNAL std::string holders_text(const std::vector<DeviceHolder>& holders);

}  // namespace drivetrain
