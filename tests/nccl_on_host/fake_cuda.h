// Streams, events and graphs on the host: a stream is a thread that runs what was enqueued, in order; memory is the
// host's. The null stream is the host itself: waiting there blocks, so a test reads what it waited for; but for threads
// with a HostDevice. For tests only.
#pragma once

#include "redirect.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace drivetrain::nccl {

void enqueue_on_host(cudaStream_t stream, std::function<void()> task);

// Of an event that was recorded once: whether its stream has come to it.
using EventVersion = std::shared_ptr<std::atomic<bool>>;

// While it lives, the null stream of this thread is a stream like others: the host enqueues and goes on.
class HostDevice {
 public:
  HostDevice();
  ~HostDevice();
  // Until all that was enqueued there has run; false: `within_s` were over.
  bool synchronize(double within_s) const;

 private:
  const cudaStream_t stream_;
};

// How many tasks of each stream come before a place in a recording.
using TasksBefore = std::map<cudaStream_t, size_t>;

// What a HostGraph has recorded.
struct HostRecording {
  std::vector<std::pair<cudaStream_t, std::function<void()>>> tasks;
  std::vector<EventVersion> events;             // that are recorded in it
  std::map<cudaStream_t, TasksBefore> streams;  // the ends of its branches so far
};

// What this thread enqueues between begin and end is recorded, and runs with each replay. On threads with a HostDevice.
// As for CUDA's graphs nobody waits in it for an event of outside, or outside for one of it, and no branch of it is
// left open.
class HostGraph {
 public:
  void begin();
  bool end();     // whether the thread's own stream has waited for all that was forked
  void replay();  // enqueues

 private:
  const std::shared_ptr<HostRecording> recording_ = std::make_shared<HostRecording>();
};

// Whether this thread is between begin and end of one.
bool host_records();

// While not 0: the null stream reaches an event that it records only so much later, as one that computes would.
extern std::atomic<int> host_busy_ms;

// How often something was asked that a graph capture forbids, while `host_capturing`.
extern std::atomic<bool> host_capturing;
extern std::atomic<int> host_queries_while_capturing;

// What ncclGetVersion tells, and how long closing a communicator takes.
extern std::atomic<int> host_nccl_version, host_closing_ms, host_closings_begun;

// What NCCL answers rank 1 of a group when it joins, and when it asks what happened in the background; and its last
// words, which are the process's.
extern std::atomic<int> host_joining_answer, host_background_answer;
extern std::atomic<const char*> host_nccl_last_words;

// What cudaEventQuery answers, from now on, of events that this thread makes.
extern thread_local cudaError_t host_events_answer;

// Of the one GPU that all ranks have, or of one for each that asks.
extern std::atomic<const char*> host_gpu_name;
extern std::atomic<bool> host_gpus_differ;

// What cudaGetLastError finds; a query that was not ready may leave its word there.
extern thread_local cudaError_t host_last_error;

}  // namespace drivetrain::nccl
