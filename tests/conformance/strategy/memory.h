// LibTorch's CPU memory with a count of the bytes that are alive: for a whole test program, `CountedMemory memory;` at
// namespace scope. Thread: any, as an allocator has to be.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>

namespace drivetrain::test {

class CountedMemory final : public c10::Allocator {
 public:
  // Above every other priority, and for good: blocks outlive the object.
  CountedMemory() { c10::SetCPUAllocator(this, /*priority=*/200); }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    char* block = static_cast<char*>(c10::alloc_cpu(bytes + kHead));
    std::memcpy(block, &bytes, sizeof bytes);
    alive += static_cast<int64_t>(bytes);
    return {block + kHead, block + kHead, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  static inline std::atomic<int64_t> alive = 0;

 private:
  static constexpr size_t kHead = 64;  // keeps LibTorch's alignment

  static void release(void* data) {
    if (!data) return;
    char* block = static_cast<char*>(data) - kHead;
    size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof bytes);
    alive -= static_cast<int64_t>(bytes);
    c10::free_cpu(block);
  }
};

}  // namespace drivetrain::test
