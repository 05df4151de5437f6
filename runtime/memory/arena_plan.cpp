#include <algorithm>
#include <numeric>

#include "memory/step_arena.h"

namespace drivetrain {
namespace {

constexpr size_t kPage = 4096;

struct Placed {
  int64_t begin, end;  // bytes in the arena
};

bool same_time(const StepEvent& a, const StepEvent& b) { return a.born < b.died && b.born < a.died; }

// The lowest gap of `bytes` between neighbours in order of offset.
int64_t lowest_gap(std::vector<Placed>& neighbours, int64_t bytes) {
  std::sort(neighbours.begin(), neighbours.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  int64_t at = 0;
  for (const Placed& n : neighbours) {
    if (n.begin - at >= bytes) break;
    at = std::max(at, n.end);
  }
  return at;
}

}  // namespace

ArenaPlan plan_arena(const std::vector<StepEvent>& events) {
  ArenaPlan plan;
  for (const StepEvent& e : events) plan.sizes.push_back(e.bytes);
  plan.offsets.assign(events.size(), -1);
  std::vector<size_t> order(events.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return events[a].bytes > events[b].bytes; });

  std::vector<size_t> placed;
  std::vector<Placed> neighbours;
  for (const size_t i : order) {
    if (events[i].died < 0) continue;
    const auto bytes = static_cast<int64_t>((events[i].bytes + kPage - 1) / kPage * kPage);
    neighbours.clear();
    for (const size_t j : placed)
      if (same_time(events[i], events[j]))
        neighbours.push_back(
            {plan.offsets[j], plan.offsets[j] + static_cast<int64_t>((events[j].bytes + kPage - 1) / kPage * kPage)});
    plan.offsets[i] = lowest_gap(neighbours, bytes);
    plan.bytes = std::max(plan.bytes, static_cast<size_t>(plan.offsets[i] + bytes));
    placed.push_back(i);
  }
  return plan;
}

}  // namespace drivetrain
