// Access to the run's device, for plugins that launch kernels themselves.
// Nothing here links CUDA: the runtime opens its CUDA library only if the run uses the device. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(device)

namespace drivetrain {

// The current stream of this thread: a cudaStream_t on CUDA, null on the CPU.
// Work that is enqueued there runs in order with LibTorch's. Valid until the current stream of the thread changes.
DRIVETRAIN_API void* current_stream(const at::Device& device);

// For the line after a kernel launch or CUDA call. `status`: its cudaError_t. If it is not 0, throws an Error with
// `what` and CUDA's message: Error(internal), or what a failed device is told as (memory, an illegal address of any
// kernel before, ECC), which runs and plugin calls make of it. Does not synchronise.
DRIVETRAIN_API void check_launch(int status, const char* what);

// Uninitialised host memory, [numel], contiguous. `pinned`: page-locked if the run has a device, so that copies to and
// from the device are asynchronous.
DRIVETRAIN_API at::Tensor host_memory(int64_t numel, at::ScalarType dtype, bool pinned);

}  // namespace drivetrain
