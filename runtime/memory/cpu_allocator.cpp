#include "memory/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr size_t kSmallest = size_t{64} << 10;  // glibc recycles smaller blocks by itself
constexpr size_t kHeader = 64;                  // keeps LibTorch's alignment of 64 bytes
constexpr int kClasses = 4 * 40;                // up to 2^56 bytes
constexpr size_t kLargest = size_t{1} << 55;    // beyond every address space
constexpr int32_t kMalloc = -1;

struct Header {
  int32_t size_class;  // kMalloc: from alloc_cpu
  int64_t bytes;       // of the whole block
};

// Classes 1.25, 1.5, 1.75 and 2 times each power of two, so that at most a fifth of a block is not asked for.
struct SizeClass {
  int32_t index;
  size_t bytes;
};
SizeClass size_class(size_t bytes) {
  const size_t power = std::bit_floor(std::max(bytes - 1, kSmallest));
  const size_t quarter = power / 4;
  const size_t quarters = (bytes - power + quarter - 1) / quarter;
  const auto log = static_cast<int32_t>(std::countr_zero(power) - std::countr_zero(kSmallest));
  return {4 * log + static_cast<int32_t>(std::max<size_t>(quarters, 1)) - 1, power + std::max<size_t>(quarters, 1) * quarter};
}

class CachingCpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &CachingCpuAllocator::release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CachingCpuAllocator::release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  CpuMemory memory() {
    const std::lock_guard lock(mutex_);
    return memory_;
  }

  // Leaked on purpose: tensors in static storage outlive everything else.
  static CachingCpuAllocator& instance() {
    static auto* const allocator = new CachingCpuAllocator;
    return *allocator;
  }

 private:
  void* take(size_t bytes) {
    if (bytes <= kSmallest - kHeader) return stamp(c10::alloc_cpu(bytes + kHeader), kMalloc, bytes + kHeader);
    if (bytes > kLargest) throw no_memory(bytes);
    const SizeClass wanted = size_class(bytes + kHeader);
    {
      const std::lock_guard lock(mutex_);
      memory_.in_use += static_cast<int64_t>(wanted.bytes);
      memory_.peak_in_use = std::max(memory_.peak_in_use, memory_.in_use);
      std::vector<void*>& list = free_[wanted.index];
      if (!list.empty()) {
        void* block = list.back();
        list.pop_back();
        return static_cast<char*>(block) + kHeader;
      }
      memory_.reserved += static_cast<int64_t>(wanted.bytes);
    }
    void* block = mmap(nullptr, wanted.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
      forget(wanted.bytes);
      throw no_memory(bytes);
    }
    return stamp(block, wanted.index, wanted.bytes);
  }

  Error no_memory(size_t bytes) {
    return fail(ErrorCode::out_of_memory, "no memory for a tensor of ", bytes, " bytes (", memory().in_use,
                " in use). Use a smaller micro-batch, model or sequence length");
  }

  static void* stamp(void* block, int32_t index, size_t bytes) {
    *static_cast<Header*>(block) = {index, static_cast<int64_t>(bytes)};
    return static_cast<char*>(block) + kHeader;
  }

  void forget(size_t bytes) {
    const std::lock_guard lock(mutex_);
    memory_.in_use -= static_cast<int64_t>(bytes);
    memory_.reserved -= static_cast<int64_t>(bytes);
  }

  static void release(void* data) {
    if (!data) return;
    void* block = static_cast<char*>(data) - kHeader;
    const Header header = *static_cast<Header*>(block);
    if (header.size_class == kMalloc) return c10::free_cpu(block);
    CachingCpuAllocator& self = instance();
    const std::lock_guard lock(self.mutex_);
    self.memory_.in_use -= header.bytes;
    self.free_[header.size_class].push_back(block);
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  CpuMemory memory_;
};

}  // namespace

void install_cpu_allocator() { c10::SetCPUAllocator(&CachingCpuAllocator::instance(), /*priority=*/100); }

CpuMemory cpu_memory() { return CachingCpuAllocator::instance().memory(); }

}  // namespace drivetrain
