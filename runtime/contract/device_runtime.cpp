#include "contract/device_runtime.h"

#include <atomic>

namespace drivetrain {
namespace {

std::atomic<DeviceRuntime*> the_device_runtime = nullptr;

}  // namespace

void set_device_runtime(DeviceRuntime* runtime) { the_device_runtime = runtime; }
DeviceRuntime* device_runtime() { return the_device_runtime; }

}  // namespace drivetrain
