// LibTorch's CPU memory with a count of the bytes that are alive: for a whole test program, `CountedMemory memory;` at
// namespace scope. Thread: any, as an allocator has to be.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
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
    const int64_t now = alive += static_cast<int64_t>(bytes);
    for (int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    return {block + kHead, block + kHead, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  static inline std::atomic<int64_t> alive = 0, most = 0;  // most: since a test set it

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

// For a stand-in that computes by larger tensors than what it stands for: while it lives, CountedMemory::most does not
// change; at its end that is at least `bytes` beyond what there was at its begin, and what there is.
class TakesInstead {
 public:
  explicit TakesInstead(int64_t bytes) : most_(CountedMemory::most), taken_(CountedMemory::alive + bytes) {}
  ~TakesInstead() { CountedMemory::most = std::max({most_, taken_, CountedMemory::alive.load()}); }
  TakesInstead(const TakesInstead&) = delete;

 private:
  const int64_t most_, taken_;
};

}  // namespace drivetrain::test
