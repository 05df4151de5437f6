// The accelerator's side of the runtime, in a library of its own that is opened only when a run asks for the device. Everything
// else reaches it through this interface, so that CPU runs load nothing of it.
// One per process, set before the first rank is composed and never taken back. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include <drivetrain/export.h>

namespace drivetrain {

class DRIVETRAIN_API DeviceRuntime {
 public:
  virtual ~DeviceRuntime();
  virtual void* current_stream(const at::Device& device) = 0;
  virtual std::string error_text(int status) const = 0;  // the driver's words for a status of a launch
};

DRIVETRAIN_API void set_device_runtime(DeviceRuntime* runtime);  // not owned; lives until exit
DRIVETRAIN_API DeviceRuntime* device_runtime();                  // null on CPU runs

}  // namespace drivetrain
