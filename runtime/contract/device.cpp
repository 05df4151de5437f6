#include <drivetrain/device.h>

#include <ATen/ops/empty.h>

#include <drivetrain/error.h>

#include "contract/device_runtime.h"

namespace drivetrain {

void* current_stream(const at::Device& device) {
  if (device.is_cpu()) return nullptr;
  if (!device_runtime()) throw fail(ErrorCode::internal, "a stream of ", device.str(), " before its device was opened");
  return device_runtime()->current_stream(device);
}

void check_launch(int status, const char* what) {
  if (status == 0) return;
  const std::string words = device_runtime() ? device_runtime()->error_text(status) : "no device was opened";
  throw fail(ErrorCode::internal, what, ": the launch failed with status ", status, " (", words, ")");
}

at::Tensor host_memory(int64_t numel, at::ScalarType dtype, bool pinned) {
  if (pinned && device_runtime()) return device_runtime()->pinned_exactly(numel, dtype);
  return at::empty({numel}, at::TensorOptions(dtype));
}

}  // namespace drivetrain
