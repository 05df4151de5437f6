// Streams and events on the host: a stream is a thread that runs what was enqueued, in order; memory is the host's. The
// null stream is the host itself: waiting there blocks, so a test reads what it waited for. For tests only.
#pragma once

#include "redirect.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>

namespace drivetrain::nccl {

void enqueue_on_host(cudaStream_t stream, std::function<void()> task);

// While not 0: the null stream reaches an event that it records only so much later, as one that computes would.
extern std::atomic<int> host_busy_ms;

// How often something was asked that a graph capture forbids, while `host_capturing`.
extern std::atomic<bool> host_capturing;
extern std::atomic<int> host_queries_while_capturing;

// What cudaGetLastError finds; a query that was not ready may leave its word there.
extern thread_local cudaError_t host_last_error;

}  // namespace drivetrain::nccl
