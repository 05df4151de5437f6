#include "matrix/pairs.h"

#include <algorithm>

namespace drivetrain::test {
namespace {

constexpr int kMostValues = 8;
constexpr int kPairs = kFactors * kFactors * kMostValues * kMostValues;

int pair_of(const Cell& cell, int f, int g) {
  return ((f * kFactors + g) * kMostValues + cell[static_cast<size_t>(f)]) * kMostValues + cell[static_cast<size_t>(g)];
}

template <class Visit>
void for_each_pair(const Cell& cell, const Visit& visit) {
  for (int f = 0; f < kFactors; ++f)
    for (int g = f + 1; g < kFactors; ++g) visit(static_cast<size_t>(pair_of(cell, f, g)));
}

std::vector<bool> pairs_in(const std::vector<Cell>& cells) {
  std::vector<bool> present(kPairs, false);
  for (const Cell& cell : cells) for_each_pair(cell, [&](size_t pair) { present[pair] = true; });
  return present;
}

int gain_of(const Cell& cell, const std::vector<bool>& missing) {
  int gain = 0;
  for_each_pair(cell, [&](size_t pair) { gain += missing[pair]; });
  return gain;
}

}  // namespace

size_t count_pairs(const std::vector<Cell>& cells) {
  const std::vector<bool> present = pairs_in(cells);
  return static_cast<size_t>(std::count(present.begin(), present.end(), true));
}

std::vector<Cell> cover_pairs(const std::vector<Cell>& legal) {
  std::vector<bool> missing = pairs_in(legal);
  std::array<std::array<int, kMostValues>, kFactors> uses = {};
  const auto uses_of = [&](const Cell& cell) {
    int sum = 0;
    for (size_t f = 0; f < kFactors; ++f) sum += uses[f][static_cast<size_t>(cell[f])];
    return sum;
  };
  std::vector<Cell> chosen;
  while (true) {
    const Cell* best = nullptr;
    int best_gain = 0;
    for (const Cell& cell : legal) {
      const int gain = gain_of(cell, missing);
      if (gain > best_gain || (best && gain == best_gain && uses_of(cell) < uses_of(*best)))
        best = &cell, best_gain = gain;
    }
    if (!best) return chosen;
    for_each_pair(*best, [&](size_t pair) { missing[pair] = false; });
    for (size_t f = 0; f < kFactors; ++f) ++uses[f][static_cast<size_t>((*best)[f])];
    chosen.push_back(*best);
  }
}

}  // namespace drivetrain::test
