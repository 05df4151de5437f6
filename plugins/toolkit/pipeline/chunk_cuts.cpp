#include "chunk_cuts.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/pipeline/schedule_graph.h>

namespace drivetrain {
namespace {

constexpr double kShorter = 1 - 1e-9;              // less than this is no gain: rounding must not decide a cut
constexpr int64_t kMostComputations = 20'000'000;  // simulated in all

// A length of what does run would be no length of the step.
[[noreturn]] void refuse_waiting(const StepOrder::Wait& wait) {
  throw fail(ErrorCode::plugin, "the schedule's orders wait for each other: computation ", wait.at, " of stage ",
             wait.stage, " wants the ", wait.wanted.direction == Direction::forward ? "forward" : "backward",
             " of micro-batch ", wait.instr.micro, " through piece ", wait.wanted.piece,
             ", which no stage comes to; mend the schedule's order");
}

std::vector<PieceTime> times_of_pieces(const std::vector<double>& sums, const std::vector<int64_t>& first) {
  std::vector<PieceTime> times;
  for (size_t i = 0; i < first.size(); ++i) {
    const int64_t end = i + 1 < first.size() ? first[i + 1] : static_cast<int64_t>(sums.size()) - 1;
    const double cost = sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(first[i])];
    times.push_back({cost, cost, cost});
  }
  return times;
}

bool every_piece_has_units(const std::vector<int64_t>& first, int64_t units) {
  for (size_t i = 1; i < first.size(); ++i)
    if (first[i] <= first[i - 1]) return false;
  return first.back() < units;
}

}  // namespace

std::vector<int64_t> shorter_cuts(const Schedule& schedule, const std::vector<Program>& orders, int64_t micro_batches,
                                  const std::vector<double>& unit_costs, std::vector<int64_t> first) {
  const int64_t units = static_cast<int64_t>(unit_costs.size());
  std::vector<double> sums = {0};
  for (const double cost : unit_costs) sums.push_back(sums.back() + cost);
  const StepOrder step = ScheduleGraph(schedule).order(orders, micro_batches, ScheduleGraph::Messages::implied);
  if (!step.waiting.empty()) refuse_waiting(step.waiting.front());
  std::vector<double> ends;
  int64_t left = kMostComputations / std::max<int64_t>(static_cast<int64_t>(step.nodes.size()), 1);
  double length = step.run(times_of_pieces(sums, first), ends);
  for (bool better = true; better && left > 0;) {
    better = false;
    std::vector<int64_t> best = first;
    for (size_t from = 1; from < first.size(); ++from)
      for (const int64_t by : {-1, 1}) {
        std::vector<int64_t> moved = first;
        for (size_t to = from; to < first.size() && left > 0; ++to) {
          moved[to] += by;
          if (!every_piece_has_units(moved, units)) continue;
          --left;
          const double found = step.run(times_of_pieces(sums, moved), ends);
          if (found >= length * kShorter) continue;
          length = found, best = moved, better = true;
        }
      }
    first = best;
  }
  return first;
}

}  // namespace drivetrain
