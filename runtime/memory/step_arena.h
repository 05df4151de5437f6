// A planned arena for what a training step allocates again and again:
// two steps are watched, then every tensor of a step gets a fixed place, packed by size and lifetime. A step that asks
// for something else falls back to the caching allocator from there on.
//
// Source: Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference", greedy by size.
// One per rank; begin and end on the thread that runs steps. Blocks may be freed on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "internal.h"

namespace drivetrain {

// What one step asked for, in order.
struct StepEvent {
  size_t bytes = 0;
  int64_t born = 0, died = -1;  // ticks; -1: outlived the step
};

// A place for every event that died in its step: offsets so that no two that live at the same time overlap.
struct ArenaPlan {
  std::vector<size_t> sizes;     // asked for, one per event
  std::vector<int64_t> offsets;  // -1: no place, comes from the caching allocator
  size_t bytes = 0;              // of the arena
};
DRIVETRAIN_INTERNAL ArenaPlan plan_arena(const std::vector<StepEvent>& events);

class DRIVETRAIN_INTERNAL StepArena {
 public:
  StepArena();
  ~StepArena();  // the memory stays until its last block is freed
  StepArena(const StepArena&) = delete;
  StepArena& operator=(const StepArena&) = delete;

  void begin_step();
  void end_step();

  struct State;

 private:
  State* state_;
};

// A step's span, also when it ends by an exception.
class ArenaStep {
 public:
  explicit ArenaStep(StepArena& arena) : arena_(arena) { arena_.begin_step(); }
  ~ArenaStep() { arena_.end_step(); }

 private:
  StepArena& arena_;
};

}  // namespace drivetrain
