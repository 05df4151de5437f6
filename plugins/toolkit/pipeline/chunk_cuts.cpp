#include "chunk_cuts.h"

#include <algorithm>
#include <limits>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr double kShorter = 1 - 1e-9;              // less than this is no gain: rounding must not decide a cut
constexpr int64_t kMostComputations = 20'000'000;  // simulated in all

// Computations of all stages in an order that they can run in, whatever pieces cost.
class StepTrial {
 public:
  StepTrial(const Schedule& schedule, const std::vector<Program>& orders, int64_t micro_batches)
      : pieces_(schedule.stages() * schedule.chunks()), micro_batches_(micro_batches), clocks_(orders.size()) {
    done_.resize(static_cast<size_t>(2 * pieces_ * micro_batches));
    std::vector<bool> written(done_.size());
    std::vector<size_t> at(orders.size());
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t s = 0; s < orders.size(); ++s)
        for (; at[s] < orders[s].size(); ++at[s]) {
          const Computation c = computation(orders[s][at[s]], s, schedule);
          if (c.reads >= 0 && !written[static_cast<size_t>(c.reads)]) break;
          if (c.writes >= 0) written[static_cast<size_t>(c.writes)] = true;
          list_.push_back(c);
          progress = true;
        }
    }
    for (size_t s = 0; s < orders.size(); ++s)
      if (at[s] < orders[s].size()) refuse_waiting(computation(orders[s][at[s]], s, schedule), at[s]);
  }

  int64_t computations() const { return static_cast<int64_t>(list_.size()); }

  double length(const std::vector<double>& piece_costs) {
    std::fill(clocks_.begin(), clocks_.end(), 0);
    for (const Computation& c : list_) {
      double& clock = clocks_[c.stage];
      if (c.reads >= 0) clock = std::max(clock, done_[static_cast<size_t>(c.reads)]);
      clock += c.share * piece_costs[static_cast<size_t>(c.piece)];
      if (c.writes >= 0) done_[static_cast<size_t>(c.writes)] = clock;
    }
    return *std::max_element(clocks_.begin(), clocks_.end());
  }

 private:
  struct Computation {
    size_t stage;
    int64_t piece, reads, writes;  // cells of done_; -1: none
    double share;                  // of a forward's time
  };

  Computation computation(const Instr& i, size_t stage, const Schedule& schedule) const {
    const int64_t piece = schedule.piece(static_cast<int64_t>(stage), i.chunk);
    const int64_t forward = piece * micro_batches_ + i.micro, backward = (pieces_ + piece) * micro_batches_ + i.micro;
    if (i.op == Op::forward) return {stage, piece, piece > 0 ? forward - micro_batches_ : -1, forward, 1};
    if (i.op == Op::backward_weight) return {stage, piece, -1, -1, 1};
    return {stage, piece, piece + 1 < pieces_ ? backward + micro_batches_ : forward, backward,
            i.op == Op::backward ? 2.0 : 1.0};
  }

  // A length of what does run would be no length of the step.
  [[noreturn]] void refuse_waiting(const Computation& c, size_t at) const {
    const int64_t micro = c.reads % micro_batches_, of = c.reads / micro_batches_;
    throw fail(ErrorCode::plugin, "the schedule's orders wait for each other: computation ", at, " of stage ", c.stage,
               " wants the ", of < pieces_ ? "forward" : "backward", " of micro-batch ", micro, " through piece ",
               of % pieces_, ", which no stage comes to; mend the schedule's order");
  }

  int64_t pieces_, micro_batches_;
  std::vector<double> clocks_, done_;  // of stages; when each forward and backward ended
  std::vector<Computation> list_;
};

std::vector<double> costs_of_pieces(const std::vector<double>& sums, const std::vector<int64_t>& first) {
  std::vector<double> costs;
  for (size_t i = 0; i < first.size(); ++i) {
    const int64_t end = i + 1 < first.size() ? first[i + 1] : static_cast<int64_t>(sums.size()) - 1;
    costs.push_back(sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(first[i])]);
  }
  return costs;
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
  StepTrial trial(schedule, orders, micro_batches);
  int64_t left = kMostComputations / std::max<int64_t>(trial.computations(), 1);
  double length = trial.length(costs_of_pieces(sums, first));
  for (bool better = true; better && left > 0;) {
    better = false;
    std::vector<int64_t> best = first;
    for (size_t from = 1; from < first.size(); ++from)
      for (const int64_t step : {-1, 1}) {
        std::vector<int64_t> moved = first;
        for (size_t to = from; to < first.size() && left > 0; ++to) {
          moved[to] += step;
          if (!every_piece_has_units(moved, units)) continue;
          --left;
          const double found = trial.length(costs_of_pieces(sums, moved));
          if (found >= length * kShorter) continue;
          length = found, best = moved, better = true;
        }
      }
    first = best;
  }
  return first;
}

}  // namespace drivetrain
