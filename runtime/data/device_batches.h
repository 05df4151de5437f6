// Micro-batches where the units compute: on the CPU as the feed gives them; on a device copied into tensors that stay,
// one set per micro-batch of a step, so that recorded work finds every step's batch in the same place.
//
// Copies go through pinned memory on the current stream and nobody waits for them: work enqueued before still reads the
// old rows, work enqueued afterwards the new ones. A pinned buffer is given back at once; LibTorch hands it out again
// only when the device has read it. Main thread.
#pragma once

#include <map>

#include <drivetrain/step_context.h>

#include "contract/device_runtime.h"
#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL DeviceBatches {
 public:
  // `runtime` may be null on the CPU.
  DeviceBatches(const at::Device& device, DeviceRuntime* runtime) : device_(device), runtime_(runtime) {}

  // `host` as micro-batch `micro` of the coming work. The result is overwritten by the next batch of the same number.
  Batch put(int64_t micro, Batch host);

 private:
  void copy(at::Tensor& place, const at::Tensor& host);
  struct Places {
    at::Tensor tokens, labels, position_ids;
  };
  const at::Device device_;
  DeviceRuntime* const runtime_;
  std::map<int64_t, Places> places_;
};

}  // namespace drivetrain
