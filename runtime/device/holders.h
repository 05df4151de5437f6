// Who else holds memory of a GPU, as NVIDIA's management library (libnvidia-ml.so.1, part of the driver) tells it.
// Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

struct DeviceHolder {
  int64_t pid = 0, bytes = -1;  // bytes: -1 where the driver does not tell
  std::string name = {};        // of the program; "" for a process of another container or user
};

inline constexpr const char* kManagementLibrary = "libnvidia-ml.so.1";

// Processes that compute on the GPU of this UUID (uuid_text), but this one. Empty where nobody tells.
DRIVETRAIN_INTERNAL std::vector<DeviceHolder> holders_of_device(const std::string& uuid,
                                                                const char* library = kManagementLibrary);

// "\n   it is held by process 4711 (python, 66948 MiB), process 4712 (954 MiB)"; "" for none.
DRIVETRAIN_INTERNAL std::string holders_text(const std::vector<DeviceHolder>& holders);

// As nvidia-smi and CUDA_VISIBLE_DEVICES have it, "GPU-8-4-4-4-12", of 32 hexadecimal digits; "MIG-..." of a slice,
// which the name of the device tells.
DRIVETRAIN_INTERNAL std::string uuid_text(const std::string& digits, const std::string& name);

// The UUIDs of all GPUs of this host, whatever CUDA_VISIBLE_DEVICES hides. Empty where nobody tells.
DRIVETRAIN_INTERNAL std::vector<std::string> devices_of_host(const char* library = kManagementLibrary);

}  // namespace drivetrain
