#include "cuda/cuda_runtime.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <drivetrain/error.h>
#include "base/hex.h"
#include "device/holders.h"
#include "device/no_device.h"

namespace drivetrain {
namespace {

// The runtime goes by these numbers without CUDA's header.
#define ROW(number, name, ...) static_assert(static_cast<int>(name) == (number));
#include "plugin_calls/device_errors.inc"

constexpr size_t kWorthPages = size_t{1} << 20;  // below, a power of two wastes little

namespace allocator = c10::cuda::CUDACachingAllocator;

// cudaGetErrorString needs no device.
std::string words_for(cudaError_t status) { return concat(cudaGetErrorName(status), ": ", cudaGetErrorString(status)); }

Error nothing_to_use(const std::string& said) {
  NoDevice facts{.said = said, .on_host = devices_of_host()};
  cudaDriverGetVersion(&facts.driver);  // 0 without a driver
  cudaRuntimeGetVersion(&facts.wanted);
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible = visible, facts.is_set = true;
  return no_device(facts);
}

c10::DeviceIndex index_of(const at::Device& device) {
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

DeviceFacts facts_of(int index) {
  cudaDeviceProp properties = {};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return {properties.name, properties.major * 10 + properties.minor, static_cast<int64_t>(properties.totalGlobalMem),
          uuid_text(hex_text({properties.uuid.bytes, sizeof properties.uuid.bytes}), properties.name)};
}

Error not_locked(size_t bytes, const std::string& said) {
  return fail(ErrorCode::out_of_memory, "cannot lock ", bytes, " bytes of host memory: ", said,
              "\n   look at `ulimit -l` and at the host's free memory, or set \"pin_memory\": false");
}

// Whole pages of the process, locked: the driver's own allocation and LibTorch's cache of it take a power of two.
struct LockedPages {
  void* memory = MAP_FAILED;
  size_t bytes = 0;
  explicit LockedPages(size_t wanted) : bytes(wanted) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int why = errno;
    if (memory == MAP_FAILED) throw not_locked(bytes, std::strerror(why));
    const cudaError_t status = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (status == cudaSuccess) return;
    munmap(memory, bytes);
    cudaGetLastError();
    if (cudaPeekAtLastError() != cudaSuccess) C10_CUDA_CHECK(status);  // stays: of a kernel that failed before
    throw not_locked(bytes, words_for(status));
  }
  LockedPages(const LockedPages&) = delete;
  ~LockedPages() {
    C10_CUDA_IGNORE_ERROR(cudaDeviceSynchronize());  // copies may still read it
    C10_CUDA_IGNORE_ERROR(cudaHostUnregister(memory));
    munmap(memory, bytes);
  }
};

int64_t current_of(const c10::CachingAllocator::StatArray& stats) {
  return stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current;
}
int64_t peak_of(const c10::CachingAllocator::StatArray& stats) {
  return stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

}  // namespace

CudaRuntime::CudaRuntime() {
  int found = 0;
  const cudaError_t status = cudaGetDeviceCount(&found);
  if (status != cudaSuccess || found == 0) {
    cudaGetLastError();  // not to be found again by the next call
    throw nothing_to_use(status == cudaSuccess ? "there are 0 devices" : words_for(status));
  }
  if (!at::hasCUDA())
    throw fail(ErrorCode::internal,
               "LibTorch was asked for CUDA before its CUDA libraries were open, and will not see the GPU");
  for (int i = 0; i < found; ++i) facts_.push_back(facts_of(i));
  // Partial sums of one product (split-K) stay float32, as within it.
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
}

// All work of a rank goes to one stream that is not the legacy default one: that one cannot be recorded, and nodes of a
// graph made on another stream than the one recorded would tie the recording to it.
void CudaRuntime::use(int64_t index) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  c10::cuda::set_device(device);
  at::globalContext().lazyInitDevice(at::kCUDA);
  if (c10::cuda::getCurrentCUDAStream(device) == c10::cuda::getDefaultCUDAStream(device))
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device));
}

void* CudaRuntime::current_stream(const at::Device& device) {
  return c10::cuda::getCurrentCUDAStream(index_of(device)).stream();
}

void CudaRuntime::synchronize(const at::Device& device) {
  const c10::cuda::CUDAGuard guard(index_of(device));
  c10::cuda::device_synchronize();
}

std::string CudaRuntime::error_text(int status) const { return words_for(static_cast<cudaError_t>(status)); }

// Here CUDA's word for no memory is of the host's.
at::Tensor CudaRuntime::pinned(int64_t numel, at::ScalarType dtype) {
  try {
    return at::empty({numel}, at::TensorOptions().dtype(dtype).pinned_memory(true));
  } catch (const c10::AcceleratorError& e) {
    if (e.get_error_code() != cudaErrorMemoryAllocation) throw;
    throw not_locked(static_cast<size_t>(numel) * c10::elementSize(dtype), words_for(cudaErrorMemoryAllocation));
  }
}

at::Tensor CudaRuntime::pinned_exactly(int64_t numel, at::ScalarType dtype) {
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  if (bytes < kWorthPages) return pinned(numel, dtype);
  const auto pages = std::make_shared<LockedPages>(bytes);
  return at::from_blob(
      pages->memory, {numel}, [pages](void*) {}, at::TensorOptions(dtype));
}

DeviceMemory CudaRuntime::memory(const at::Device& device) {
  at::globalContext().lazyInitDevice(at::kCUDA);
  const auto stats = allocator::getDeviceStats(index_of(device));
  return {current_of(stats.allocated_bytes), current_of(stats.reserved_bytes), peak_of(stats.allocated_bytes),
          peak_of(stats.reserved_bytes)};
}

void CudaRuntime::reset_peak(const at::Device& device) {
  at::globalContext().lazyInitDevice(at::kCUDA);
  allocator::resetPeakStats(index_of(device));
}

int64_t CudaRuntime::new_graph_pool() {
  const std::lock_guard lock(mutex_);
  pools_.push_back(at::cuda::graph_pool_handle());
  return static_cast<int64_t>(pools_.size()) - 1;
}

std::unique_ptr<DeviceGraph> CudaRuntime::new_graph(const at::Device& device, int64_t pool) {
  const std::lock_guard lock(mutex_);
  return new_cuda_graph(index_of(device), pools_.at(static_cast<size_t>(pool)));
}

std::unique_ptr<DeviceMark> CudaRuntime::new_mark(const at::Device& device) { return new_cuda_mark(index_of(device)); }

}  // namespace drivetrain

drivetrain::DeviceRuntime* drivetrain_device_runtime() {
  static auto* const leaked = new drivetrain::CudaRuntime;  // outlives every tensor
  return leaked;
}
