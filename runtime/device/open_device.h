// From "device": "cuda" in a config to an open device. Main thread, before any tensor: a LibTorch that was once asked
// for CUDA without its CUDA libraries stays blind to the GPU.
#pragma once

#include <string>

#include "internal.h"

namespace drivetrain {

// The folder of the LibTorch in use: it holds lib/libc10.so.
DRIVETRAIN_INTERNAL std::string torch_folder();

// Opens LibTorch's CUDA libraries and our side of them, and sets device_runtime(); "cpu" opens nothing, a second call
// does nothing. Throws Error(config): a build without CUDA, a library that is missing (by name), no driver or no GPU
// (in the driver's words), a GPU that is too old.
DRIVETRAIN_INTERNAL void open_device(const std::string& device);

// The GPU of this rank becomes the current one of this thread. Throws Error(config) if this host has more ranks than
// GPUs.
DRIVETRAIN_INTERNAL void use_device(const std::string& device, int64_t local_rank, int64_t local_size);

}  // namespace drivetrain
