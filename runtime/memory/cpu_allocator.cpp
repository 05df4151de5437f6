#include "memory/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include <drivetrain/error.h>

#include "memory/arena_state.h"
#include "memory/pages.h"

namespace drivetrain {
namespace {

constexpr size_t kSmallest = size_t{64} << 10;  // glibc recycles smaller blocks by itself
constexpr size_t kHeader = 64;                  // keeps LibTorch's alignment of 64 bytes
constexpr int kClasses = 4 * 40;                // up to 2^56 bytes
constexpr size_t kLargest = size_t{1} << 55;    // beyond every address space
constexpr int32_t kMalloc = -1, kArena = -2;

struct Header {
  int32_t size_class;                 // kMalloc: from alloc_cpu; kArena: from a step's arena
  int64_t bytes;                      // of the whole block
  StepArena::State* arena = nullptr;  // of kArena
  uint64_t step = 0;                  // the watched step that asked for it, and which of its events it is; 0: none
  size_t event = 0;
};
static_assert(sizeof(Header) <= kHeader);

// Classes 1.25, 1.5, 1.75 and 2 times each power of two, so that at most a fifth of a block is not asked for. Headers
// lie outside of them: tensors' sizes are often such numbers themselves.
struct SizeClass {
  int32_t index;
  size_t bytes;  // without the header
};
SizeClass size_class(size_t bytes) {
  const size_t power = std::bit_floor(std::max(bytes - 1, kSmallest));
  const size_t quarter = power / 4;
  const size_t quarters = (bytes - power + quarter - 1) / quarter;
  const auto log = static_cast<int32_t>(std::countr_zero(power) - std::countr_zero(kSmallest));
  return {4 * log + static_cast<int32_t>(std::max<size_t>(quarters, 1)) - 1,
          power + std::max<size_t>(quarters, 1) * quarter};
}

class CachingCpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &CachingCpuAllocator::release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CachingCpuAllocator::release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  void begin_step(StepArena::State* arena) {
    const std::lock_guard lock(mutex_);
    arena->begin(++steps_);
    current_arena() = arena;
    if (arena->watching()) watchers_[arena->step] = arena;
  }
  void end_step(StepArena::State* arena) {
    const std::lock_guard lock(mutex_);
    current_arena() = nullptr;
    watchers_.erase(arena->step);
    const size_t before = arena->plan.bytes;
    if (arena->end()) trim();
    count_reserved(static_cast<int64_t>(arena->plan.bytes) - static_cast<int64_t>(before));
  }
  void abandon(StepArena::State* arena) {
    const std::lock_guard lock(mutex_);
    memory_.reserved -= static_cast<int64_t>(arena->plan.bytes);
    arena->abandon();
  }

  static int64_t bytes_of(const c10::DataPtr& data) {
    if (!data.get() || data.get_deleter() != &CachingCpuAllocator::release) return 0;
    return reinterpret_cast<const Header*>(static_cast<const char*>(data.get()) - kHeader)->bytes;  // kMalloc: 0
  }

  CpuMemory memory() {
    const std::lock_guard lock(mutex_);
    return memory_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    memory_.peak_in_use = memory_.in_use, memory_.peak_reserved = memory_.reserved;
  }

  // Leaked on purpose: tensors in static storage outlive everything else.
  static CachingCpuAllocator& instance() {
    static auto* const allocator = new CachingCpuAllocator;
    return *allocator;
  }

 private:
  void* take(size_t bytes) {
    if (bytes <= kSmallest - kHeader) return stamp(c10::alloc_cpu(bytes + kHeader), {kMalloc, 0});
    if (bytes > kLargest) throw no_memory(bytes);
    const SizeClass wanted = size_class(bytes);
    const size_t whole_block = wanted.bytes + kHeader;
    Header header = {wanted.index, static_cast<int64_t>(whole_block)};
    void* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      StepArena::State* arena = current_arena();
      if (arena && !arena->watching()) {
        const auto whole = static_cast<int64_t>(bytes + kHeader);
        if (void* place = arena->take(bytes + kHeader)) return count_in(whole), stamp(place, {kArena, whole, arena});
      }
      if (arena && arena->watching()) header.step = arena->step, header.event = arena->watch(bytes + kHeader);
      count_in(header.bytes);
      std::vector<void*>& list = free_[wanted.index];
      if (!list.empty())
        block = list.back(), list.pop_back();
      else
        count_reserved(header.bytes);
    }
    if (block) return stamp(block, header);
    block = map_pages(whole_block);
    if (!block) block = map_after_trim(whole_block);
    if (!block) {
      forget(whole_block);
      throw no_memory(bytes);
    }
    return stamp(block, header);
  }

  void count_reserved(int64_t bytes) {
    memory_.reserved += bytes;
    memory_.peak_reserved = std::max(memory_.peak_reserved, memory_.reserved);
  }

  void count_in(int64_t bytes) {
    memory_.in_use += bytes;
    memory_.peak_in_use = std::max(memory_.peak_in_use, memory_.in_use);
  }

  Error no_memory(size_t bytes) {
    return fail(ErrorCode::out_of_memory, "no memory for a tensor of ", bytes, " bytes (", memory().in_use,
                " in use). Use a smaller micro-batch, model or sequence length");
  }

  static void* stamp(void* block, const Header& header) {
    *static_cast<Header*>(block) = header;
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
    if (header.size_class == kArena) return header.arena->give_back(block);
    if (const auto watcher = self.watchers_.find(header.step); watcher != self.watchers_.end())
      watcher->second->unwatch(header.event);
    self.free_[header.size_class].push_back(block);
  }

  // Blocks of other sizes may hold what is missing.
  void* map_after_trim(size_t bytes) {
    const std::lock_guard lock(mutex_);
    trim();
    return map_pages(bytes);
  }

  // Gives the free blocks back to the system.
  void trim() {
    for (int32_t index = 0; index < kClasses; ++index) {
      for (void* block : free_[index]) {
        const int64_t bytes = static_cast<Header*>(block)->bytes;
        unmap_pages(block, static_cast<size_t>(bytes));
        memory_.reserved -= bytes;
      }
      free_[index].clear();
    }
  }

  std::mutex mutex_;
  uint64_t steps_ = 0;
  std::map<uint64_t, StepArena::State*> watchers_;  // of steps that are being watched
  std::array<std::vector<void*>, kClasses> free_;
  CpuMemory memory_;
};

}  // namespace

void install_cpu_allocator() { c10::SetCPUAllocator(&CachingCpuAllocator::instance(), /*priority=*/100); }

StepArena::~StepArena() { CachingCpuAllocator::instance().abandon(state_); }
void StepArena::begin_step() { CachingCpuAllocator::instance().begin_step(state_); }
void StepArena::end_step() { CachingCpuAllocator::instance().end_step(state_); }

int64_t cpu_block_bytes(int64_t bytes) {
  if (bytes <= static_cast<int64_t>(kSmallest - kHeader)) return 0;
  return static_cast<int64_t>(size_class(static_cast<size_t>(bytes)).bytes + kHeader);
}
CpuMemory cpu_memory() { return CachingCpuAllocator::instance().memory(); }
void reset_cpu_peak() { CachingCpuAllocator::instance().reset_peak(); }
int64_t cpu_memory_of(const c10::DataPtr& data) { return CachingCpuAllocator::bytes_of(data); }

}  // namespace drivetrain
