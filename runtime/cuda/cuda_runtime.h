// DeviceRuntime over LibTorch's CUDA libraries: libdrivetrain_cuda.so, the only code of this tree that links them.
// Opened by runtime/device/open_device.cpp after libtorch_cuda.so, through the one symbol below.
#pragma once

#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <mutex>
#include <vector>

#include <drivetrain/export.h>

#include "contract/device_runtime.h"

namespace drivetrain {

class CudaRuntime final : public DeviceRuntime {
 public:
  CudaRuntime();  // throws Error(config) with the driver's words if there is no GPU to use
  int64_t count() const override { return static_cast<int64_t>(facts_.size()); }
  DeviceFacts facts(int64_t index) const override { return facts_.at(static_cast<size_t>(index)); }
  void use(int64_t index) override;
  void* current_stream(const at::Device& device) override;
  void synchronize(const at::Device& device) override;
  std::string error_text(int status) const override;
  at::Tensor pinned(int64_t numel, at::ScalarType dtype) override;
  DeviceMemory memory(const at::Device& device) override;
  void reset_peak(const at::Device& device) override;
  at::Tensor pinned_exactly(int64_t numel, at::ScalarType dtype) override;
  int64_t new_graph_pool() override;
  std::unique_ptr<DeviceGraph> new_graph(const at::Device& device, int64_t pool) override;
  std::unique_ptr<DeviceMark> new_mark(const at::Device& device) override;

 private:
  std::vector<DeviceFacts> facts_;  // asked once: a device that has failed answers nothing any more
  std::mutex mutex_;
  std::vector<c10::MempoolId_t> pools_;
};

std::unique_ptr<DeviceGraph> new_cuda_graph(c10::DeviceIndex index, c10::MempoolId_t pool);
std::unique_ptr<DeviceMark> new_cuda_mark(c10::DeviceIndex index);

}  // namespace drivetrain

// The runtime of this process, made on the first call and never destroyed. Throws as CudaRuntime does.
extern "C" DRIVETRAIN_API drivetrain::DeviceRuntime* drivetrain_device_runtime();
