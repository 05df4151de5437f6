// Which cells a study has, in which order. No processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include <drivetrain/error.h>

#include "study/design.h"

namespace drivetrain::study {
namespace {

Factor factor(const std::string& name, int levels) {
  Factor one{name, {}};
  for (int i = 0; i < levels; ++i) one.levels.push_back({std::to_string(i), {{name, Value(i)}}});
  return one;
}

StudyFile study_with(const std::vector<Factor>& factors, Cross cross) {
  StudyFile study;
  study.path = "study.json", study.factors = factors, study.cross = cross, study.noise_cell = false;
  study.reference.assign(factors.size(), 0);
  return study;
}

TEST(Design, a_full_cross_has_every_combination_once_and_the_reference_first) {
  StudyFile study = study_with({factor("a", 2), factor("b", 3)}, Cross::full);
  study.reference = {1, 2};
  const Design design = design_of(study);
  std::set<std::vector<int>> seen;
  for (const Cell& cell : design.cells) seen.insert(cell.levels);
  EXPECT_EQ(design.cells.size(), 6u);
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(design.cells.front().id, "a=1,b=2");
  EXPECT_TRUE(design.cells.front().is_reference);
}

TEST(Design, one_at_a_time_differs_from_the_reference_in_one_factor) {
  const Design design = design_of(study_with({factor("a", 3), factor("b", 2)}, Cross::one_at_a_time));
  EXPECT_EQ(design.cells.size(), 4u);
  for (const Cell& cell : design.cells)
    EXPECT_LE(std::count_if(cell.levels.begin(), cell.levels.end(), [](int x) { return x != 0; }), 1);
}

TEST(Design, constraints_leave_cells_out_and_an_empty_study_is_refused) {
  StudyFile study = study_with({factor("a", 2), factor("b", 2)}, Cross::full);
  study.constraints = {{{{0, {1}}}, {{1, {0}}}}};
  EXPECT_EQ(design_of(study).cells.size(), 3u);
  EXPECT_EQ(design_of(study).left_out, 1);
  study.constraints = {{{{0, {0, 1}}}, {}}};
  EXPECT_THROW(design_of(study), Error);
}

TEST(Design, two_factors_on_one_key_and_two_cells_of_one_id_are_refused) {
  Factor same = factor("b", 2);
  for (Level& level : same.levels) level.changes.front().key = "a";
  EXPECT_THROW(design_of(study_with({factor("a", 2), same}, Cross::full)), Error);
  StudyFile study = study_with({factor("a", 2)}, Cross::full);
  study.rows = {{"", {1}, {}}};
  EXPECT_THROW(design_of(study), Error);
}

// Orthogonal: every two levels of any two factors meet equally often.
void expect_balanced(const std::vector<int>& levels, const Fraction& fraction) {
  for (size_t f = 0; f < levels.size(); ++f)
    for (size_t g = f + 1; g < levels.size(); ++g) {
      std::map<std::pair<int, int>, int> met;
      for (const std::vector<int>& cell : fraction.cells) ++met[{cell[f], cell[g]}];
      EXPECT_EQ(met.size(), static_cast<size_t>(levels[f] * levels[g]));
      for (const auto& [pair, times] : met) EXPECT_EQ(times, met.begin()->second);
    }
}

TEST(Design, fractions_are_balanced_and_have_the_known_resolutions) {
  const std::vector<std::tuple<std::vector<int>, int64_t, int>> cases = {
      {{2, 2, 2}, 2, 3},       {{2, 2, 2, 2}, 2, 4},       {{2, 2, 2, 2, 2}, 2, 5},
      {{2, 2, 2, 2, 2}, 4, 3}, {{2, 2, 2, 2, 2, 2}, 4, 4}, {{2, 2, 2, 2, 2, 2, 2}, 16, 3},
      {{3, 3, 3}, 3, 3},       {{3, 3, 3, 3}, 9, 3},       {{2, 2, 2, 3}, 2, 3}};
  for (const auto& [levels, part, resolution] : cases) {
    const Fraction fraction = fraction_of(levels, part);
    size_t all = 1;
    for (const int count : levels) all *= static_cast<size_t>(count);
    EXPECT_EQ(fraction.cells.size(), all / static_cast<size_t>(part));
    EXPECT_EQ(fraction.resolution, resolution) << levels.size() << " factors, 1 of " << part;
    expect_balanced(levels, fraction);
  }
  EXPECT_THROW(fraction_of({2, 2}, 2), Error);
  EXPECT_THROW(fraction_of({2, 2, 2}, 3), Error);
}

TEST(Design, every_block_has_every_cell_once_in_an_order_of_its_seed) {
  const std::vector<Turn> order = order_of(8, 4, 1), again = order_of(8, 4, 1), other = order_of(8, 4, 2);
  const auto cells = [](const std::vector<Turn>& turns) {
    std::vector<size_t> list;
    for (const Turn& turn : turns) list.push_back(turn.cell);
    return list;
  };
  EXPECT_EQ(cells(order), cells(again));
  EXPECT_NE(cells(order), cells(other));
  for (int64_t block = 0; block < 4; ++block) {
    std::set<size_t> seen;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(order[static_cast<size_t>(block) * 8 + i].block, block);
      seen.insert(order[static_cast<size_t>(block) * 8 + i].cell);
    }
    EXPECT_EQ(seen.size(), 8u);
  }
  const auto all = cells(order);
  EXPECT_FALSE(std::equal(all.begin(), all.begin() + 8, all.begin() + 8));
}

}  // namespace
}  // namespace drivetrain::study
