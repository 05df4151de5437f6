// From "device": "cuda" in a config to an open device. Main thread, before any tensor: a LibTorch that was once asked
// for CUDA without its CUDA libraries stays blind to the GPU.
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/store.h>

#include "internal.h"

namespace drivetrain {

class DeviceRuntime;

// The folder of the LibTorch in use: it holds lib/libc10.so.
DRIVETRAIN_INTERNAL std::string torch_folder();

// Opens LibTorch's CUDA libraries and our side of them, and sets device_runtime(); "cpu" opens nothing, a second call
// does nothing. Throws Error(config): a build without CUDA, a library that is missing (by name), no driver or no GPU
// (in the driver's words), a GPU that is too old, a DRIVETRAIN_NCCL that cannot be used (given_library.h).
DRIVETRAIN_INTERNAL void open_device(const std::string& device);

// Throws Error(config) for a GPU among those that this process sees that is older than our kernels.
DRIVETRAIN_INTERNAL void check_age(const DeviceRuntime& runtime);

// The GPU of this rank becomes the current one of this thread. Throws Error(config) if this host has more ranks than
// GPUs and they may not share one. Where a process sees one GPU and the host has several ranks, each is taken to see
// another one.
DRIVETRAIN_INTERNAL void use_device(const std::string& device, int64_t local_rank, int64_t local_size);
// The index of that GPU among those that this process sees.
DRIVETRAIN_INTERNAL int64_t device_index(int64_t local_rank, int64_t local_size);
// Of NCCL, from 2.30 on: several ranks take turns on one GPU. Set and not 0: nothing of the runtime's refuses that.
inline constexpr const char* kShareDevices = "NCCL_MULTI_RANK_GPU_ENABLE";
DRIVETRAIN_INTERNAL bool ranks_may_share_devices();
// Throws Error(config) if another rank has told the store that it uses the same GPU, and ranks may not share it. Does
// not wait.
DRIVETRAIN_INTERNAL void check_own_device(Store& store, int64_t rank, int64_t local_rank, int64_t local_size);

}  // namespace drivetrain
