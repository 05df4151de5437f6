// Few choices in which every pair of values of two factors occurs that occurs in any legal choice.
#pragma once

#include <array>
#include <vector>

namespace drivetrain::test {

// Of every factor the index of its value.
using Choice = std::vector<int>;

// How many pairs of values these choices have.
size_t count_pairs(const std::vector<Choice>& choices);

// Indices into `legal`. Greedy and without chance: again and again the choice that has most of the pairs still missing;
// of equal ones that whose values were used least, then the first.
std::vector<size_t> cover_pairs(const std::vector<Choice>& legal);

// The same of cells, which are arrays.
template <size_t N>
std::vector<Choice> choices_of(const std::vector<std::array<int, N>>& cells) {
  std::vector<Choice> choices;
  for (const auto& cell : cells) choices.emplace_back(cell.begin(), cell.end());
  return choices;
}
template <size_t N>
size_t count_pairs(const std::vector<std::array<int, N>>& cells) {
  return count_pairs(choices_of(cells));
}
template <size_t N>
std::vector<std::array<int, N>> cover_pairs(const std::vector<std::array<int, N>>& legal) {
  std::vector<std::array<int, N>> chosen;
  for (const size_t index : cover_pairs(choices_of(legal))) chosen.push_back(legal[index]);
  return chosen;
}

}  // namespace drivetrain::test
