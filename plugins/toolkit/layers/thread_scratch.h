// Memory of a thread for kernels that pack their operands: it grows, and stays for the thread's next product.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace drivetrain {

// Aligned to a page; until the thread's next call.
inline void* scratch_of_thread(int64_t bytes) {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  static thread_local std::unique_ptr<void, Free> memory;
  static thread_local int64_t size = 0;
  if (size < bytes) {
    memory.reset();
    size = (bytes + 4095) / 4096 * 4096;
    memory.reset(std::aligned_alloc(4096, static_cast<size_t>(size)));
    if (!memory) {
      size = 0;
      throw std::bad_alloc();
    }
  }
  return memory.get();
}

}  // namespace drivetrain
