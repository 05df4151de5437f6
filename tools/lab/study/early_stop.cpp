#include "study/early_stop.h"

#include <algorithm>

namespace drivetrain::study {
namespace {

// Negative: the first is the better one.
double worse_by(const Comparison& pair, bool higher) { return higher ? -pair.mean : pair.mean; }

}  // namespace

std::vector<StoppedCell> cells_to_stop(const Analysis& analysis, const std::vector<std::string>& competing,
                                       double level, int64_t rivals, int64_t looks) {
  std::vector<const CellResult*> cells;  // the best first
  for (const size_t i : analysis.ranking)
    if (std::find(competing.begin(), competing.end(), analysis.cells[i].cell->id) != competing.end())
      cells.push_back(&analysis.cells[i]);
  // Repeats that are one run say nothing of chance, so nothing of who cannot win.
  if (cells.size() < 2 || rivals < 1 || looks < 1 || analysis.is_one_run) return {};
  const CellResult& best = *cells.front();
  const double each = level / static_cast<double>(rivals) / static_cast<double>(looks);
  std::vector<StoppedCell> stopped;
  for (const CellResult* const one : cells) {
    if (one == &best || one->cell->is_reference || one->cell->is_noise) continue;
    const Comparison pair =
        compared(one->values(), one->value_blocks(), best.values(), best.value_blocks(), 0, analysis.scale);
    if (pair.degrees < 2 || worse_by(pair, is_higher_better(analysis)) <= 0) continue;
    // Pairs that differ by one and the same amount have no p-value, and leave no doubt.
    const double p = pair.paired ? *pair.paired / 2 : 0;
    if (p < each) stopped.push_back({one->cell->id, best.cell->id, pair.n, pair.change, p, each, analysis.scale});
  }
  return stopped;
}

}  // namespace drivetrain::study
