#include "train/start_device.h"

#include <c10/core/Device.h>

#include "contract/device_runtime.h"
#include "device/open_device.h"
#include "plugin_calls/plugin_call.h"
#include "plugin_calls/situations.h"

namespace drivetrain {

void start_device(const std::string& device, int64_t local_rank, int64_t local_size) {
  try {
    if (device != "cpu") work_rank().device = device_index(local_rank, local_size);
    use_device(device, local_rank, local_size);
    if (device == "cpu") return;
    const auto index = static_cast<c10::DeviceIndex>(work_rank().device);
    device_runtime()->synchronize(c10::Device(c10::kCUDA, index));  // takes the memory of a context
  } catch (const std::exception& e) {
    const auto situation = situation_of(e);
    if (!situation) throw;
    throw fail(situation->code, "the GPU of this rank cannot be used: ", situation->text());
  }
}

}  // namespace drivetrain
