#include "plugin_calls/start_device.h"

#include <c10/core/Device.h>

#include "contract/device_runtime.h"
#include "device/holders.h"
#include "device/open_device.h"
#include "plugin_calls/situations.h"

namespace drivetrain {

void start_device(const std::string& device, int64_t local_rank, int64_t local_size) {
  try {
    use_device(device, local_rank, local_size);
    if (device == "cpu") return;
    const auto index = static_cast<c10::DeviceIndex>(device_index(local_rank, local_size));
    device_runtime()->synchronize(c10::Device(c10::kCUDA, index));  // takes the memory of a context
  } catch (const std::exception& e) {
    const auto situation = situation_of(e);
    if (!situation) throw;
    const int64_t index = device_index(local_rank, local_size);
    const DeviceFacts facts = device_runtime()->facts(index);
    throw fail(situation->code, "GPU ", index, " (", facts.name, ") cannot be used: ", situation->what,
               holders_text(holders_of_device(facts.uuid)), "\n   ", situation->remedy);
  }
}

}  // namespace drivetrain
