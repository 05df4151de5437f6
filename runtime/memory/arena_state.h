// The arena's side that the allocator calls, under its lock.
#pragma once

#include "memory/step_arena.h"

namespace drivetrain {

struct StepArena::State {
  // While watching: the steps' events. While planned: the plan and its memory.
  std::vector<StepEvent> events;
  std::vector<size_t> sizes_before;  // of the step before
  ArenaPlan plan;
  char* memory = nullptr;

  uint64_t step = 0;  // unique in the process
  int64_t tick = 0;
  size_t next = 0;        // of the plan
  bool diverged = false;  // this step asked for something else
  int diverged_in_a_row = 0;
  std::map<int64_t, int64_t> live;  // begin -> end of blocks handed out
  bool abandoned = false;           // the owner is gone; the last block frees the memory

  bool watching() const { return memory == nullptr; }

  // A place for the step's next tensor, or null: take it from elsewhere.
  void* take(size_t bytes);
  void give_back(void* block);
  // For blocks from elsewhere while watching: what take and release tell.
  size_t watch(size_t bytes);
  void unwatch(size_t event);

  void begin(uint64_t id);
  // Returns true if a plan was just made: cached blocks of the steps before are no longer needed.
  bool end();
  void drop_plan();
  void abandon();  // the owner goes; deletes this, now or with the last block
};

// The arena of the step that this thread is in; null: none.
StepArena::State*& current_arena();

}  // namespace drivetrain
