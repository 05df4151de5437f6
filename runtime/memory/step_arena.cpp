#include "memory/step_arena.h"

#include <algorithm>

#include "memory/arena_state.h"
#include "memory/pages.h"

namespace drivetrain {
namespace {

constexpr size_t kMostEvents = 20000;  // a plan for more would take longer than it saves
constexpr int kPatience = 3;           // steps off the plan before a new one is made

}  // namespace

StepArena::State*& current_arena() {
  thread_local StepArena::State* arena = nullptr;
  return arena;
}

void StepArena::State::begin(uint64_t id) {
  step = id, tick = 0, next = 0;
  events.clear();
  // A block of the step before is still in use: its place may not be given away, so this step goes without.
  diverged = !watching() && !live.empty();
}

bool StepArena::State::end() {
  if (!watching()) {
    if (next != plan.sizes.size()) diverged = true;
    diverged_in_a_row = diverged ? diverged_in_a_row + 1 : 0;
    if (diverged_in_a_row >= kPatience && live.empty()) drop_plan();
    return false;
  }
  std::vector<size_t> sizes;
  for (const StepEvent& e : events) sizes.push_back(e.bytes);
  const bool repeats = !sizes.empty() && sizes == sizes_before && sizes.size() <= kMostEvents;
  sizes_before = std::move(sizes);
  if (!repeats) return false;
  plan = plan_arena(events);
  if (plan.bytes == 0) return false;
  memory = static_cast<char*>(map_pages(plan.bytes));
  if (!memory) {  // no harm: everything comes from the caching allocator, as before
    plan = {};
    return false;
  }
  return true;
}

void StepArena::State::drop_plan() {
  if (memory) unmap_pages(memory, plan.bytes);
  memory = nullptr;
  plan = {};
  sizes_before.clear();
  diverged_in_a_row = 0;
}

void* StepArena::State::take(size_t bytes) {
  if (diverged) return nullptr;
  if (next >= plan.sizes.size() || plan.sizes[next] != bytes) {
    diverged = true;
    return nullptr;
  }
  const int64_t begin = plan.offsets[next++];
  if (begin < 0) return nullptr;
  const int64_t end = begin + static_cast<int64_t>(bytes);
  // Something lives longer than it did in the step the plan was made from.
  const auto after = live.lower_bound(end);
  if (after != live.begin() && std::prev(after)->second > begin) return nullptr;
  live[begin] = end;
  return memory + begin;
}

void StepArena::State::give_back(void* block) {
  live.erase(static_cast<char*>(block) - memory);
  if (abandoned && live.empty()) abandon();
}

void StepArena::State::abandon() {
  abandoned = true;
  if (!live.empty()) return;
  drop_plan();
  delete this;
}

size_t StepArena::State::watch(size_t bytes) {
  events.push_back({bytes, tick++, -1});
  return events.size() - 1;
}

void StepArena::State::unwatch(size_t event) { events[event].died = tick++; }

StepArena::StepArena() : state_(new State) {}

}  // namespace drivetrain
