// A caching allocator behind LibTorch's CPU tensors:
// freshly mapped pages cost a third of a training step, so what was freed is kept and handed out again.
//
// Blocks from 64 KB up are rounded to size classes, four per power of two, and kept in one free list per class;
// below that the C library is as good. Memory is kept, since a step asks for the same sizes again and again, until the
// step's plan (step_arena.h) makes it superfluous or the system has no more.
// One per process, shared by ranks that are threads. Thread: any.
#pragma once

#include <cstdint>

#include "internal.h"

namespace c10 {
class DataPtr;
}

namespace drivetrain {

// From here on every CPU tensor of LibTorch, temporaries of operators included, comes from the caching allocator.
// Once is enough; before other threads exist.
DRIVETRAIN_INTERNAL void install_cpu_allocator();

// Of blocks from 64 KB up. `reserved` is address space: pages of a block that were never touched take no memory.
struct CpuMemory {
  int64_t in_use = 0, reserved = 0, peak_in_use = 0, peak_reserved = 0;
};
DRIVETRAIN_INTERNAL CpuMemory cpu_memory();
// From here on the peaks are those of what comes.
DRIVETRAIN_INTERNAL void reset_cpu_peak();
// What in_use counts for a tensor of so many bytes, unless it has a place in a step's plan.
DRIVETRAIN_INTERNAL int64_t cpu_block_bytes(int64_t bytes);
// What in_use counts for this memory; 0 where it is none of those blocks.
DRIVETRAIN_INTERNAL int64_t cpu_memory_of(const c10::DataPtr& data);

}  // namespace drivetrain
