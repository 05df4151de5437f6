// The accelerator's side of the runtime, in a library of its own that is opened only when a run asks for the device.
// Everything else reaches it through this interface, so that CPU runs load nothing of it. One per process, set before
// the first rank is composed and never taken back. Thread: any, but a graph belongs to the thread that began it. What
// goes wrong inside throws c10::Error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "internal.h"

namespace drivetrain {

struct DeviceFacts {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  int arch = 0;              // compute capability as in sm_90
  int64_t memory_bytes = 0;  // of the whole device
  std::string uuid = {};     // "GPU-...", "MIG-..."; of no other, whatever the host and however many of it are hidden
};

// Of LibTorch's caching allocator; the peaks since the start or the last reset_peak.
struct DeviceMemory {
  int64_t allocated = 0, reserved = 0, peak_allocated = 0, peak_reserved = 0;
};

// Work recorded once and enqueued again as one piece. Graphs of one pool share its memory: nothing in a graph's own
// memory outlives its replay, except tensors that the caller still holds.
class DRIVETRAIN_INTERNAL DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // From here to end() what this thread enqueues is recorded, on a stream of the recording's own, and does not run. The
  // caller ran the same work once before, so that handles and workspaces are there. Destroyed between begin and end:
  // nothing is kept.
  virtual void begin() = 0;
  virtual void end() = 0;
  // Between begin and end: whether what was done so far can be held. Once it is broken, end() throws.
  virtual bool is_whole() { return true; }
  virtual void replay() = 0;  // enqueues on the current stream, any number of times; the host does not wait
};

// A moment in a stream, for timing.
class DRIVETRAIN_INTERNAL DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual void record() = 0;                                    // now, in the current stream of the mark's device
  virtual double seconds_since(const DeviceMark& earlier) = 0;  // waits until the device has reached both
};

class DRIVETRAIN_INTERNAL DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual int64_t count() const = 0;
  virtual DeviceFacts facts(int64_t index) const = 0;
  virtual void use(int64_t index) = 0;  // the current device of this thread
  virtual void* current_stream(const at::Device& device) = 0;
  virtual void synchronize(const at::Device& device) = 0;              // the host waits for all work of the device
  virtual std::string error_text(int status) const = 0;                // the driver's words for a status of a launch
  virtual at::Tensor pinned(int64_t numel, at::ScalarType dtype) = 0;  // on the host, uninitialised
  virtual DeviceMemory memory(const at::Device& device) = 0;
  virtual void reset_peak(const at::Device& device) = 0;
  // The same for memory that is kept long: as large as was asked for, where `pinned` rounds up to a power of two.
  // Giving it back waits for the device.
  virtual at::Tensor pinned_exactly(int64_t numel, at::ScalarType dtype) = 0;
  // A pool of memory for graphs that are replayed in the order in which they were recorded.
  virtual int64_t new_graph_pool() = 0;
  virtual std::unique_ptr<DeviceGraph> new_graph(const at::Device& device, int64_t pool) = 0;
  virtual std::unique_ptr<DeviceMark> new_mark(const at::Device& device) = 0;
};

DRIVETRAIN_INTERNAL void set_device_runtime(DeviceRuntime* runtime);  // not owned; lives until exit
DRIVETRAIN_INTERNAL DeviceRuntime* device_runtime();                  // null on CPU runs

}  // namespace drivetrain
