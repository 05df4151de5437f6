// DeviceGraph over LibTorch's CUDAGraph, which routes what is allocated while recording to a pool of the graph's own.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <optional>

#include <drivetrain/error.h>
#include "cuda/cuda_runtime.h"

namespace drivetrain {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(c10::DeviceIndex index, c10::MempoolId_t pool) : index_(index), pool_(pool) {}

  ~CudaGraph() override {
    if (!recording_) return;
    try {
      end();
    } catch (const std::exception&) {  // the recording is broken, which is why we are here
    }
  }

  void begin() override {
    if (recording_ || recorded_) throw fail(ErrorCode::internal, "a graph is recorded once");
    // What the caching allocator keeps for eager work is of no use to the graph's pool, and recording may need the
    // room.
    const c10::cuda::CUDAGuard guard(index_);
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    before_ = c10::cuda::getCurrentCUDAStream(index_);
    if (*before_ == c10::cuda::getDefaultCUDAStream(index_))  // which cannot be recorded
      c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index_));
    try {
      // Other threads (a communicator's watch, the feed) may call the driver meanwhile.
      graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      recording_ = true;
    } catch (...) {
      c10::cuda::setCurrentCUDAStream(*before_);
      throw;
    }
  }

  void end() override {
    if (!recording_) throw fail(ErrorCode::internal, "a graph is ended that was not begun");
    recording_ = false;
    const c10::cuda::CUDAGuard guard(index_);
    try {
      graph_.capture_end();
      recorded_ = true;
    } catch (...) {
      c10::cuda::setCurrentCUDAStream(*before_);
      throw;
    }
    c10::cuda::setCurrentCUDAStream(*before_);
  }

  bool is_whole() override {
    auto status = cudaStreamCaptureStatusActive;
    const cudaError_t asked = cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(index_).stream(), &status);
    return asked != cudaSuccess || status != cudaStreamCaptureStatusInvalidated;  // a device that fails: no word of it
  }

  void replay() override {
    if (!recorded_) throw fail(ErrorCode::internal, "a graph is replayed that was not recorded");
    graph_.replay();
  }

 private:
  const c10::DeviceIndex index_;
  const c10::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
  std::optional<c10::cuda::CUDAStream> before_;
  bool recording_ = false, recorded_ = false;
};

class CudaMark final : public DeviceMark {
 public:
  explicit CudaMark(c10::DeviceIndex index) : index_(index) {
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(cudaEventCreate(&event_));
  }
  ~CudaMark() override { C10_CUDA_IGNORE_ERROR(cudaEventDestroy(event_)); }

  void record() override {
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(cudaEventRecord(event_, c10::cuda::getCurrentCUDAStream(index_).stream()));
  }

  double seconds_since(const DeviceMark& earlier) override {
    const auto& before = dynamic_cast<const CudaMark&>(earlier);
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventSynchronize(before.event_));
    C10_CUDA_CHECK(cudaEventSynchronize(event_));
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, before.event_, event_));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  const c10::DeviceIndex index_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceGraph> new_cuda_graph(c10::DeviceIndex index, c10::MempoolId_t pool) {
  return std::make_unique<CudaGraph>(index, pool);
}

std::unique_ptr<DeviceMark> new_cuda_mark(c10::DeviceIndex index) { return std::make_unique<CudaMark>(index); }

}  // namespace drivetrain
