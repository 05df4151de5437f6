// LibTorch's CPU memory, hostile: a block is full of NaN when it is handed out and again when it is freed, so whoever
// reads what was never written, or what was let go, reads NaN. For a whole test program: `const PoisonedMemory
// poisoned;` at namespace scope.
//
// All bits set is NaN in every floating-point type and -1 in the signed ones. Memory of other origin (a communicator's
// own) is not touched. Thread: any, as an allocator has to be.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace drivetrain::test {

class PoisonedMemory final : public c10::Allocator {
 public:
  // Above every other priority, and for good: blocks outlive the object.
  PoisonedMemory() { c10::SetCPUAllocator(this, /*priority=*/200); }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    char* block = static_cast<char*>(std::aligned_alloc(kHead, (kHead + bytes + kHead - 1) / kHead * kHead));
    if (!block) throw std::bad_alloc();
    std::memcpy(block, &bytes, sizeof bytes);
    void* data = std::memset(block + kHead, 0xff, bytes);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static constexpr size_t kHead = 64;  // keeps LibTorch's alignment

  static void release(void* data) {
    if (!data) return;
    char* block = static_cast<char*>(data) - kHead;
    size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof bytes);
    // Volatile: a plain write before free may be dropped as dead.
    volatile char* last = static_cast<char*>(data);
    std::memset(data, 0xff, bytes);
    last[bytes - 1] = static_cast<char>(0xff);
    std::free(block);
  }
};

}  // namespace drivetrain::test
