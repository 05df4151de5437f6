// A device that does nothing: stand-ins override what a test watches.
#pragma once

#include <ATen/ops/empty.h>

#include "contract/device_runtime.h"

namespace drivetrain::test {

struct IdleDevice : DeviceRuntime {
  int64_t count() const override { return 1; }
  DeviceFacts facts(int64_t) const override { return {}; }
  void use(int64_t) override {}
  void* current_stream(const at::Device&) override { return nullptr; }
  void synchronize(const at::Device&) override {}
  std::string error_text(int) const override { return {}; }
  at::Tensor pinned(int64_t numel, at::ScalarType dtype) override { return at::empty({numel}, dtype); }
  DeviceMemory memory(const at::Device&) override { return {}; }
  void reset_peak(const at::Device&) override {}
  at::Tensor pinned_exactly(int64_t numel, at::ScalarType dtype) override { return pinned(numel, dtype); }
  int64_t new_graph_pool() override { return 0; }
  std::unique_ptr<DeviceGraph> new_graph(const at::Device&, int64_t) override { return nullptr; }
  std::unique_ptr<DeviceMark> new_mark(const at::Device&) override { return nullptr; }
};

}  // namespace drivetrain::test
