// The run's device, for plugins that enqueue work on it themselves.
// Nothing here links CUDA: a run that asks for it opens the device's side of the runtime. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(device)

namespace drivetrain {

// The current stream of this thread: a cudaStream_t on CUDA, null on the CPU.
// Work enqueued there is in order with LibTorch's.
DRIVETRAIN_API void* current_stream(const at::Device& device);

// Throws Error naming `what` and CUDA's own words if `status`, a cudaError_t, is not 0.
DRIVETRAIN_API void check_launch(int status, const char* what);

// Uninitialised memory of the host, [numel].
// `pinned`: page-locked where the run has a device, so that copies run beside the host.
DRIVETRAIN_API at::Tensor host_memory(int64_t numel, at::ScalarType dtype, bool pinned);

}  // namespace drivetrain
