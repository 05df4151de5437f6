#include <drivetrain/device.h>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <drivetrain/error.h>

#include "contract/device_runtime.h"

namespace drivetrain {

void* current_stream(const at::Device& device) {
  if (device.is_cpu()) return nullptr;
  if (!device_runtime()) throw fail(ErrorCode::internal, "a stream of ", device.str(), " before its device was opened");
  return device_runtime()->current_stream(device);
}

// What the device said is nested: what is known of that decides (plugin_calls/device_errors.inc), since CUDA tells here
// of any kernel before. Of the rest the caller is to blame.
void check_launch(int status, const char* what) {
  if (status == 0) return;
  const std::string words = device_runtime() ? device_runtime()->error_text(status) : "no device was opened";
  const std::string said = concat(what, ": the launch failed with status ", status, " (", words, ")");
  try {
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, status, said);
  } catch (const c10::Error&) {
    std::throw_with_nested(fail(ErrorCode::internal, said));
  }
}

at::Tensor host_memory(int64_t numel, at::ScalarType dtype, bool pinned) {
  if (pinned && device_runtime()) return device_runtime()->pinned_exactly(numel, dtype);
  return at::empty({numel}, at::TensorOptions(dtype));
}

}  // namespace drivetrain
